//! Developer commands: real servers up and down, test, tidy, bench.
//!
//! Whatever a command starts it stops, however it ends; only `up` leaves servers running, for `down` to stop.

#![expect(
    clippy::disallowed_methods,
    reason = "a developer's tool waits, runs threads and reads the environment itself"
)]

mod bench;
mod cargo;
mod error;
mod interrupt;
mod places;
mod process;
mod servers;
mod simulate;
mod steps;
mod test;
mod tidy;

use clap::{Parser, Subcommand, ValueEnum};

use crate::{error::Result, servers::Kind};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about)]
enum Command {
    /// Starts real servers, leaves them running, and prints the variables by which tests find them.
    ///
    /// Use it as: eval "$(cargo xtask up)". What runs already is used as it is, and so is a server whose
    /// variable is set.
    Up {
        #[arg(value_enum, default_value_t = Which::All)]
        which: Which,
    },
    /// Stops what `up` started and removes its data.
    ///
    /// Use it as: eval "$(cargo xtask down)", so that the shell forgets the variables too.
    Down,
    /// Checks and tests everything, with servers of its own.
    ///
    /// A server whose variable (VVM_TEST_CASSANDRA, VVM_TEST_CASSANDRA_CLUSTER, VVM_TEST_DYNAMODB) is set is
    /// used instead of an own one.
    Test {
        /// Starts no servers; the suites that need one are reported as ignored.
        #[arg(long)]
        quick: bool,
        /// Runs the long rounds too: sets VVM_TEST_LONG=1 for all suites. Takes hours.
        #[arg(long)]
        long: bool,
        /// Arguments for the test binaries, for example a part of a test's name.
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Checks format, clippy, documentation and the house rules; changes nothing.
    Tidy,
    /// Formats the code and applies what clippy knows how to mend.
    Fix,
    /// Measures.
    #[command(subcommand)]
    Bench(Bench),
    /// Simulates elections: many histories of nodes in which everything goes wrong.
    Simulate {
        /// How many; each has a seed of its own.
        #[arg(long, value_name = "N", default_value_t = 1_000_000)]
        schedules: u64,
        /// The seed of the first; the others count up from it.
        #[arg(long, value_name = "SEED", default_value_t = 0)]
        from: u64,
        /// Only the one of this seed, to replay it.
        #[arg(long, conflicts_with_all = ["schedules", "from"])]
        seed: Option<u64>,
    },
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// Every storage driver beside the bare client of its database.
    Storage {
        /// For the measuring program: --drivers mem,redb,cassandra,dynamodb --tasks 1,16,64 --rounds 3 --span-ms 2000
        /// --only put_batch.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Commands on every storage driver, beside the same writes by the bare driver.
    Commands {
        /// For the measuring program: --drivers mem,redb,cassandra,dynamodb --levels 0,1,2 --workspaces 10,1000 --in-flight 1,320
        /// --rounds 3 --span-ms 2000 --threads 2.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// How long partitions take to recover.
    Recovery {
        /// For the measuring program: --drivers mem,redb,cassandra --events 1000,1000000 --tail 1000 --workspaces 100 --rounds 9.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// A node as its users meet it: commands over HTTP, and how it starts, rests and stops with a long log.
    Node {
        /// For the measuring program: --clients 1,16,64,320 --workspaces 10 --rounds 3 --seconds 3 --events 1000000 --starts 7.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// What drawing numbers costs.
    Sequencer,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Which {
    /// One Apache Cassandra node.
    Cassandra,
    /// Three Apache Cassandra nodes that form a cluster.
    Cluster,
    /// DynamoDB Local.
    Dynamodb,
    /// All of them.
    All,
}

fn main() {
    let command = Command::parse();
    if let Err(error) = run(command) {
        eprintln!("error: {error}");
        std::process::exit(error.exit_code());
    }
}

fn run(command: Command) -> Result<()> {
    interrupt::install()?;
    match command {
        Command::Up { which } => up(which),
        Command::Down => down(),
        Command::Test { quick, long, arguments } => test::test(quick, long, &arguments),
        Command::Tidy => tidy::tidy(),
        Command::Fix => tidy::fix(),
        Command::Bench(Bench::Storage { arguments }) => bench::storage(&arguments),
        Command::Bench(Bench::Commands { arguments }) => bench::commands(&arguments),
        Command::Bench(Bench::Recovery { arguments }) => bench::recovery(&arguments),
        Command::Bench(Bench::Node { arguments }) => bench::node(&arguments),
        Command::Bench(Bench::Sequencer) => bench::sequencer(),
        Command::Simulate { schedules, from, seed } => simulate::elections(schedules, from, seed),
    }
}

fn up(which: Which) -> Result<()> {
    let kinds = match which {
        Which::Cassandra => &[Kind::Cassandra][..],
        Which::Cluster => &[Kind::Cluster],
        Which::Dynamodb => &[Kind::Dynamodb],
        Which::All => &Kind::ALL,
    };
    for (variable, address) in servers::up(kinds)? {
        println!("export {variable}={address}");
    }
    Ok(())
}

fn down() -> Result<()> {
    servers::down()?;
    for kind in Kind::ALL {
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
            assert!(Command::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
    }

    #[test]
    fn one_seed_is_simulated_or_many() {
        let is_command = |args: &str| Command::try_parse_from(args.split(' ')).is_ok();
        for right in ["", " --seed 7", " --from 7", " --from 7 --schedules 9"] {
            assert!(is_command(&format!("xtask simulate{right}")), "{right}");
        }
        for wrong in [" --seed 7 --from 0", " --seed 7 --schedules 9", " --from"] {
            assert!(!is_command(&format!("xtask simulate{wrong}")), "{wrong}");
        }
    }
}
