//! `cargo xtask rounds`: rounds of faults on real nodes, with servers of their own.

mod command;

use std::{process::Command, thread, time::Duration};

use self::command::RoundsCommand;
use crate::{
    bench, cargo,
    defects::{self, Defect},
    error::{Error, Result, failed},
    process,
    servers::{OwnServers, Purpose, ServerKind, Variables},
};

/// The storage of a run that names none: the default of the program.
const USUAL: &str = "cassandra";

/// Does what the arguments ask for. A wrong `--defect` is refused before anything is built. The
/// program refuses other wrong arguments.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    match RoundsCommand::of(arguments, defects::known()?)? {
        RoundsCommand::Help => {
            print!("{}", command::HELP);
            Ok(())
        }
        RoundsCommand::Check(file) => {
            process::run(bench::built_beside_the_binary("rounds")?.arg("check").args(file))
        }
        RoundsCommand::Run { defect: None, arguments } => run_on_servers(None, &arguments, |_| {}),
        RoundsCommand::Run { defect: Some(defect), arguments } => find(&defect, &arguments),
    }
}

/// Builds the nodes and the program, starts the server of the storage, and runs the program. Passes
/// each line that the program prints to `see`.
fn run_on_servers(
    defect: Option<&Defect>,
    arguments: &[String],
    mut see: impl FnMut(&str) + Send,
) -> Result<()> {
    let mut command = bench::built_beside_the_binary("rounds")?;
    command.arg("run").args(arguments);
    if let Some(defect) = defect {
        command.arg("--vvm").arg(defects::build(defect)?);
    }
    let servers = OwnServers::new()?;
    let variables = servers.start(server_of(arguments).as_slice(), Purpose::Rounds)?;
    process::run_reading(command.envs(variables), |line| {
        println!("{line}");
        see(line);
    })
}

/// Runs nodes with a defect. Fails unless the check that must find the defect finds it.
fn find(defect: &Defect, arguments: &[String]) -> Result<()> {
    let mut seen = Seen::default();
    let ended = run_on_servers(Some(defect), arguments, |line| seen.see(line, &defect.check));
    println!("{}", verdict(defect, &seen, ended)?);
    Ok(())
}

/// What the report of a run says.
#[derive(Default)]
struct Seen {
    /// The check that must find the defect has found a broken promise.
    is_found: bool,
    /// The run broke off. Then nothing can be read, so `readable` reports a broken promise, too.
    broke_off: bool,
}

impl Seen {
    fn see(&mut self, line: &str, check: &str) {
        let Some(broken) = line.strip_prefix("BROKEN: ") else { return };
        self.is_found |= broken.ends_with(&format!(" ({check})"));
        self.broke_off |= broken.starts_with("the run did not come to its end");
    }
}

/// What a run of nodes with a defect shows. A run that could not do its work proves nothing.
fn verdict(defect: &Defect, seen: &Seen, ended: Result<()>) -> Result<String> {
    let Defect { name, check, .. } = defect;
    match ended {
        Err(Error::Child { code: 1, .. }) if seen.broke_off => {
            failed(format!("the run did not come to its end, so nothing is known of `{name}`"))
        }
        // The program ends with 1 if a promise was broken.
        Err(Error::Child { code: 1, .. }) if seen.is_found => {
            Ok(format!("the check `{check}` has found the defect `{name}`, as it must"))
        }
        Err(Error::Child { code: 1, what }) => {
            failed(format!("{what} failed, but the check `{check}` did not find `{name}`"))
        }
        Err(Error::Child { code, what }) if code != 2 => {
            failed(format!("{what} ended with exit code {code}, so nothing is known of `{name}`"))
        }
        Ok(()) => failed(format!("the run found nothing: `{check}` must find `{name}`")),
        Err(other) => Err(other),
    }
}

/// The faults of the sample that each storage can have. `kill_server` is missing: the servers of
/// `cargo xtask test` sync now and then, so a killed server loses writes that it acknowledged.
const ON_REDB: &str = "kill,pause,stop,client_link,full_disk,clock";
const ON_CASSANDRA: &str = "kill,pause,stop,step_down,drain,storage_link,client_link,peer_link,\
                            pause_server,clock";

/// The runs of a test of the whole project.
const SAMPLE: [&[&str]; 2] = [
    &["run", "--storage", "redb", "--minutes", "1", "--seed", "1", "--faults", ON_REDB],
    &["run", "--storage", "cassandra", "--minutes", "3", "--seed", "2", "--faults", ON_CASSANDRA],
];

/// The longest time of a run of the sample. The faults of the longest one last for 3 minutes.
const SAMPLE_LIMIT: Duration = Duration::from_secs(10 * 60);

/// Runs a fixed sample with the programs that the build of the tests has made. The runs mostly
/// wait, so they run at once. The output of each is printed when it has ended.
pub(crate) fn run_sample(variables: &Variables) -> Result<()> {
    let program = cargo::target_folder()?.join("debug").join("rounds");
    let run = &|arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.args(arguments);
        command.envs(variables.iter().map(|(name, address)| (name, address)));
        let mut lines = Vec::new();
        let see = |line: &str| lines.push(line.to_owned());
        let ended = process::run_reading_all(&mut command, Some(SAMPLE_LIMIT), see);
        lines.iter().for_each(|line| println!("{line}"));
        ended
    };
    thread::scope(|scope| {
        let runs = SAMPLE.map(|arguments| scope.spawn(move || run(arguments)));
        let panicked = || failed("a run of rounds panicked");
        let ended = runs.map(|run| run.join().unwrap_or_else(|_| panicked()));
        ended.into_iter().collect()
    })
}

/// The server of the storage that the arguments name.
fn server_of(arguments: &[String]) -> Option<ServerKind> {
    let storage = bench::value_of("--storage", arguments).unwrap_or(USUAL);
    ServerKind::ALL.into_iter().find(|kind| kind.driver() == storage)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defect() -> Defect {
        Defect { name: "hole".into(), check: "logs".into(), arguments: Vec::new() }
    }

    /// Any failure of the run passed for a find.
    #[test]
    fn only_the_check_of_a_defect_finds_it() {
        let ended = |code| Err(Error::Child { what: "`rounds run`".into(), code });
        let seen = |is_found| Seen { is_found, broke_off: false };
        let text = verdict(&defect(), &seen(true), ended(1)).unwrap();
        assert_eq!(text, "the check `logs` has found the defect `hole`, as it must");
        for (is_found, end, code, why) in [
            (false, ended(1), 1, "`logs` did not find `hole`"),
            (false, Ok(()), 1, "found nothing"),
            (false, failed("no server"), 1, "no server"),
            (true, ended(101), 1, "exit code 101"),
            (false, ended(2), 2, "exit code 2"),
            (true, Err(Error::Interrupted), 130, "interrupted"),
        ] {
            let error = verdict(&defect(), &seen(is_found), end).unwrap_err();
            assert_eq!(error.exit_code(), code, "{error}");
            assert!(error.to_string().contains(why), "{error}");
        }
    }

    #[test]
    fn a_find_is_read_from_the_report() {
        let is_found = |line| {
            let mut seen = Seen::default();
            seen.see(line, "logs");
            assert!(!seen.broke_off, "{line}");
            seen.is_found
        };
        assert!(is_found("BROKEN: a log that is read has all events (logs)"));
        for other in [
            "kept:   a log that is read has all events (logs)",
            "BROKEN: all tries with one key have one effect (keys)",
            "BROKEN: node 1 has 600 MiB of memory",
            "        logs: event 3 is missing (logs)",
        ] {
            assert!(!is_found(other), "{other}");
        }
    }

    /// A node that did not start passed for a hole in a log: nothing could be read.
    #[test]
    fn a_run_that_broke_off_finds_no_defect() {
        let mut seen = Seen::default();
        seen.see("BROKEN: all logs and records can be read after the last fault (logs)", "logs");
        seen.see("BROKEN: the run did not come to its end: node 1 did not start", "logs");
        let ended = Err(Error::Child { what: "`rounds run`".into(), code: 1 });
        let error = verdict(&defect(), &seen, ended).unwrap_err().to_string();
        assert!(error.contains("did not come to its end"), "{error}");
    }

    #[test]
    fn the_server_is_that_of_the_storage() {
        let server = |arguments: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
            server_of(&arguments)
        };
        assert!(matches!(server(&["--seed", "1"]), Some(ServerKind::Cassandra)));
        assert!(matches!(server(&["--storage", "dynamodb"]), Some(ServerKind::Dynamodb)));
        assert!(matches!(server(&["--storage=cassandra_cluster"]), Some(ServerKind::Cluster)));
        assert!(server(&["--storage", "redb", "--seed", "2"]).is_none());
    }
}
