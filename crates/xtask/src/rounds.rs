//! `cargo xtask rounds`: rounds of faults on real nodes, with servers of their own.

use std::{process::Command, thread, time::Duration};

use crate::{
    bench, cargo, defects,
    error::{Result, failed},
    process,
    servers::{CommitLog, OwnServers, ServerKind, Variables},
};

/// The storage of a run that names none, as the program has it.
const USUAL: &str = "cassandra";

/// The option that names a defect of the nodes. The program does not know it.
const DEFECT: &str = "--defect";

/// Builds the nodes and the program, starts the server of the storage, and runs the program.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let mut command = bench::built_beside_the_binary("rounds")?;
    if arguments.first().is_some_and(|first| first == "check") {
        return process::run(command.args(arguments));
    }
    if asks_for_help(arguments) {
        return process::run(command.args(["run", "--help"]));
    }
    command.arg("run");
    if let Some(defect) = bench::value_of(DEFECT, arguments) {
        command.arg("--vvm").arg(defects::build(defect)?);
    }
    let arguments = &without_defect(arguments);
    let servers = OwnServers::new()?;
    let variables = servers.start(server_of(arguments).as_slice(), CommitLog::Batch)?;
    command.args(arguments).envs(variables);
    process::run_reading(&mut command, |line| println!("{line}"))
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

/// The arguments without the defect.
fn without_defect(arguments: &[String]) -> Vec<String> {
    let mut rest = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.strip_prefix(DEFECT) {
            Some("") => drop(arguments.next()),
            Some(value) if value.starts_with('=') => {}
            _ => rest.push(argument.clone()),
        }
    }
    rest
}

fn asks_for_help(arguments: &[String]) -> bool {
    arguments.iter().any(|argument| matches!(&**argument, "--help" | "-h"))
}

/// The server of the storage that the arguments name.
fn server_of(arguments: &[String]) -> Option<ServerKind> {
    let storage = bench::value_of("--storage", arguments).unwrap_or(USUAL);
    ServerKind::ALL.into_iter().find(|kind| kind.driver() == storage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_starts_no_server() {
        let asks = |line: &str| {
            let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            asks_for_help(&arguments)
        };
        assert!(asks("--help") && asks("-h") && asks("--storage redb --help"));
        assert!(!asks("") && !asks("--storage redb"));
    }

    #[test]
    fn the_program_does_not_get_the_defect() {
        for line in ["--seed 1 --defect hole --level 0", "--seed 1 --defect=hole --level 0"] {
            let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(bench::value_of(DEFECT, &arguments), Some("hole"));
            assert_eq!(without_defect(&arguments), ["--seed", "1", "--level", "0"]);
        }
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
