//! Developer commands: real servers up and down, test, tidy, bench.
//!
//! However a command ends, it stops everything that it started. Only `up` leaves servers running,
//! and `down` stops them.

#![expect(
    clippy::disallowed_methods,
    reason = "a developer's tool waits, runs threads and reads the environment itself"
)]

mod bench;
mod cargo;
mod cluster;
mod deb;
mod defects;
mod error;
mod examples;
mod folders;
mod interrupt;
mod process;
mod rounds;
mod servers;
mod simulate;
mod steps;
mod suites;
mod test;
mod tidy;

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use crate::{error::Result, servers::ServerKind};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about)]
enum XtaskCommand {
    /// Starts real servers, leaves them running, and prints the variables that tell tests where
    /// they are.
    ///
    /// Use it as: eval "$(cargo xtask up)". A server that runs already is used as it is, and so is
    /// a server with an address in its variable.
    Up {
        #[arg(value_enum, default_value_t = ServerChoice::All)]
        which: ServerChoice,
    },
    /// Stops the servers that `up` started, and removes their data.
    ///
    /// Use it as: eval "$(cargo xtask down)", so that the shell forgets the variables too.
    Down,
    /// Starts three nodes on this machine that share a Cassandra server, and shows how to try them.
    ///
    /// Ctrl-C stops the nodes and the server, and removes their data. The nodes use the ports 8822
    /// to 8824, 8832 to 8834, and 55555 to 55557.
    Cluster {
        /// Runs this program, and builds nothing.
        #[arg(long, value_name = "VVM")]
        binary: Option<PathBuf>,
    },
    /// Checks and tests everything, with servers of its own.
    ///
    /// If the variable of a server is set (VVM_TEST_CASSANDRA, VVM_TEST_CASSANDRA_CLUSTER,
    /// VVM_TEST_DYNAMODB), the command uses that server and starts none.
    Test {
        /// Starts no servers. The suites that need one are reported as ignored.
        #[arg(long)]
        quick: bool,
        /// Runs the long rounds too, by setting VVM_TEST_LONG=1 for all suites. This takes hours.
        #[arg(long)]
        long: bool,
        /// Arguments for the test binaries, for example a part of a test's name.
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Checks format, clippy, documentation and the rules of the repository. Changes nothing.
    Tidy,
    /// Formats the code, and applies the corrections that clippy can make.
    Fix,
    /// Builds the package for Debian and Ubuntu, and prints its path.
    Deb(deb::DebOptions),
    /// Measures the speed of a part of the project.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Makes faults in a cluster of real nodes over a real storage, under load, and checks that no
    /// promise is broken. `cargo xtask rounds --help` prints the options.
    #[command(disable_help_flag = true)]
    Rounds {
        /// Arguments for the program: --storage cassandra|cassandra_cluster|dynamodb|redb --minutes
        /// 3 --seed 1 --nodes 3 --level 0 --faults kill,pause. `--defect NAME` puts a patch of
        /// `tests/defects` into the nodes, and fails unless its check finds it. `check FILE` checks
        /// a kept history again.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Simulates elections: many histories of nodes with failures of all kinds.
    Simulate {
        /// The number of histories. Each has a seed of its own.
        #[arg(long, value_name = "N", default_value_t = 1_000_000)]
        schedules: u64,
        /// The seed of the first history. The other seeds follow in order.
        #[arg(long, value_name = "SEED", default_value_t = 0)]
        from: u64,
        /// Runs only the history of this seed, to replay it.
        #[arg(long, conflicts_with_all = ["schedules", "from"])]
        seed: Option<u64>,
    },
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// Measures every storage driver beside the bare client of its database; on redb also the
    /// durable commits and the opening after a crash.
    Storage {
        /// Arguments for the measuring program: --drivers mem,redb,cassandra,dynamodb --tasks
        /// 1,16,64 --rounds 3 --span-ms 2000 --only put_batch --crashes 9 --rows 1000000.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Measures commands on every storage driver, beside the same writes by the bare driver.
    Commands {
        /// Arguments for the measuring program: --drivers
        /// mem,redb,cassandra,cassandra_cluster,dynamodb --levels 0,1,2 --workspaces 10,1000
        /// --in-flight 1,320 --rounds 3 --span-ms 2000 --threads 2.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Measures commands of a node beside the same commands in PostgreSQL and NATS, if they are
    /// installed.
    Peers {
        /// Arguments for the measuring program: --clients 1,16,64,320 --workspaces 1000 --rounds 3
        /// --seconds 5 --folder /var/tmp.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Measures how long partitions take to recover.
    Recovery {
        /// Arguments for the measuring program: --drivers mem,redb,cassandra --events 1000,1000000
        /// --tail 1000 --workspaces 100 --rounds 9.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Measures a node as its users see it: commands over HTTP, and how the node starts, rests and
    /// stops with a long log.
    Node {
        /// Arguments for the measuring program: --clients 1,16,64,320 --workspaces 10 --rounds 3
        /// --seconds 3 --events 1000000 --starts 7.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Measures document numbers of a fast series on every storage driver.
    Numbers {
        /// Arguments for the measuring program: --drivers mem,redb,cassandra,dynamodb --range 10000
        /// --rate 100000 --rounds 3 --span-ms 3000.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Measures requests that a node forwards to the owner of their partition, beside requests to
    /// the owner.
    Hop {
        /// Arguments for the measuring program: --clients 1,64 --frozen 200 --rounds 5 --span-ms
        /// 2000.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Measures how fast a node delivers events to the clients that follow a log, and what a client
    /// costs.
    Followers {
        /// Arguments for the measuring program: --loads 1000:20,20:1000 --storages memory,redb
        /// --rounds 3 --seconds 10.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Measures the cost of drawing numbers.
    Sequencer,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ServerChoice {
    /// One Apache Cassandra node.
    Cassandra,
    /// Three Apache Cassandra nodes that form a cluster.
    Cluster,
    /// DynamoDB Local.
    Dynamodb,
    /// All of these servers.
    All,
}

fn main() {
    let command = XtaskCommand::parse();
    if let Err(error) = run(command) {
        eprintln!("error: {error}");
        std::process::exit(error.exit_code());
    }
}

fn run(command: XtaskCommand) -> Result<()> {
    interrupt::install()?;
    match command {
        XtaskCommand::Up { which } => up(which),
        XtaskCommand::Down => down(),
        XtaskCommand::Cluster { binary } => cluster::run(binary),
        XtaskCommand::Test { quick, long, arguments } => test::test(quick, long, &arguments),
        XtaskCommand::Tidy => tidy::tidy(),
        XtaskCommand::Fix => tidy::fix(),
        XtaskCommand::Deb(options) => deb::run(options),
        XtaskCommand::Bench(BenchCommand::Storage { arguments }) => bench::storage(&arguments),
        XtaskCommand::Bench(BenchCommand::Commands { arguments }) => bench::commands(&arguments),
        XtaskCommand::Bench(BenchCommand::Peers { arguments }) => bench::peers(&arguments),
        XtaskCommand::Bench(BenchCommand::Recovery { arguments }) => bench::recovery(&arguments),
        XtaskCommand::Bench(BenchCommand::Node { arguments }) => bench::node(&arguments),
        XtaskCommand::Bench(BenchCommand::Numbers { arguments }) => bench::numbers(&arguments),
        XtaskCommand::Bench(BenchCommand::Hop { arguments }) => bench::hop(&arguments),
        XtaskCommand::Bench(BenchCommand::Followers { arguments }) => bench::followers(&arguments),
        XtaskCommand::Bench(BenchCommand::Sequencer) => bench::sequencer(),
        XtaskCommand::Rounds { arguments } => rounds::run(&arguments),
        XtaskCommand::Simulate { schedules, from, seed } => {
            simulate::elections(schedules, from, seed)
        }
    }
}

fn up(which: ServerChoice) -> Result<()> {
    let kinds = match which {
        ServerChoice::Cassandra => &[ServerKind::Cassandra][..],
        ServerChoice::Cluster => &[ServerKind::Cluster],
        ServerChoice::Dynamodb => &[ServerKind::Dynamodb],
        ServerChoice::All => &ServerKind::ALL,
    };
    for (variable, address) in servers::up(kinds)? {
        println!("export {variable}={address}");
    }
    Ok(())
}

fn down() -> Result<()> {
    servers::down()?;
    for kind in ServerKind::ALL {
        println!("unset {}", kind.variable());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_can_be_quick_and_long() {
        for args in ["--quick", "--long", "--quick --long", "--long -- cassandra"] {
            let line = format!("xtask test {args}");
            assert!(XtaskCommand::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
    }

    #[test]
    fn the_program_of_rounds_gets_the_option_for_help() {
        for line in ["xtask rounds --help", "xtask rounds -- --help"] {
            let command = XtaskCommand::try_parse_from(line.split(' ')).unwrap();
            let XtaskCommand::Rounds { arguments } = command else { panic!("{line}") };
            assert_eq!(arguments, ["--help"], "{line}");
        }
    }

    #[test]
    fn one_seed_is_simulated_or_many() {
        let is_command = |args: &str| XtaskCommand::try_parse_from(args.split(' ')).is_ok();
        for right in ["", " --seed 7", " --from 7", " --from 7 --schedules 9"] {
            assert!(is_command(&format!("xtask simulate{right}")), "{right}");
        }
        for wrong in [" --seed 7 --from 0", " --seed 7 --schedules 9", " --from"] {
            assert!(!is_command(&format!("xtask simulate{wrong}")), "{wrong}");
        }
    }
}
