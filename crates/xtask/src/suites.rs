//! The test binaries of the workspace, in two lanes.
//!
//! Most suites wait for servers, and for leases that end. They form the first lane. The second lane
//! runs beside it: the suites that only compute and the compilers of other checks, which take only
//! the time of the processors that the first lane leaves, and then suites that pass on a busy
//! machine too. A suite that measures how long servers take runs alone, when both lanes have ended.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    cargo::{cargo, remove_own_variables},
    error::{Error, Result, failed},
    process,
};

/// The suites that only compute, by package and target: they use no server, and no outcome depends
/// on the time that passes.
const COMPUTING: [(&str, &str); 8] = [
    ("docnumbers", "periods"),
    ("docnumbers", "templates"),
    ("eventlog", "index_model"),
    ("ielections", "simulation"),
    ("isequencer", "isequencer"),
    ("ownership", "balancing"),
    ("ownership", "simulation"),
    ("processor", "simulation"),
];

/// Suites that pass on a busy machine, too. They run in the second lane because they take long.
const PATIENT: [(&str, &str); 3] =
    [("vvm-cli", "export"), ("vvm-cli", "levels"), ("vvm-cli", "packaging")];

/// The suites that run alone. On a busy machine `one_of_three_servers` would measure the load, and
/// not the servers: the pause of a client was longer than allowed while compilers ran, and never
/// without them. A server of the cluster that gets no processor does not answer the conditional
/// writes of `elections` within its own time limit. `only_replica` kills all servers of the
/// cluster.
const ALONE: [(&str, &str); 3] = [
    ("vvm-tests", "elections"),
    ("vvm-tests", "one_of_three_servers"),
    ("vvm-tests", "only_replica"),
];

/// All suites that are not in the first lane.
const NAMED: [&[(&str, &str)]; 3] = [&COMPUTING, &PATIENT, &ALONE];

/// The number of suites in the list of those that took longest.
const SLOWEST: usize = 12;

/// A test binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Suite {
    package: String,
    name: String,
    program: PathBuf,
    /// The folder of the package, where cargo runs its tests.
    folder: PathBuf,
}

impl Suite {
    /// Reads the suite in a message of cargo; `None` for other messages.
    fn read(message: &str) -> Option<Suite> {
        let message: Value = serde_json::from_str(message).ok()?;
        if message["profile"]["test"] != true {
            return None;
        }
        let program = PathBuf::from(message["executable"].as_str()?);
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
        // `path+file:///folder#name@version`, or `#version` if the folder has the name.
        let id = message["package_id"].as_str()?;
        let (path, rest) = id.rsplit_once('#')?;
        let package = rest.split_once('@').map(|(name, _)| name);
        let package = package.or_else(|| path.rsplit('/').next())?.to_owned();
        let name = message["target"]["name"].as_str()?.to_owned();
        Some(Suite { package, name, program, folder })
    }

    fn is_one_of(&self, list: &[(&str, &str)]) -> bool {
        list.contains(&(&self.package, &self.name))
    }

    fn command(&self, arguments: &[String]) -> Command {
        let mut command = match self.is_one_of(&COMPUTING) {
            true => with_lowest_priority(&Command::new(&self.program)),
            false => Command::new(&self.program),
        };
        // A suite may call cargo.
        remove_own_variables(&mut command);
        command.args(arguments).current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}

/// Builds the test binaries.
pub(crate) fn build() -> Result<Vec<Suite>> {
    let mut suites = Vec::new();
    let format = "--message-format=json-render-diagnostics";
    let mut command = cargo(&["test", "--workspace", "--no-run", format])?;
    process::run_reading(&mut command, |line| suites.extend(Suite::read(line)))?;
    let is_built = |name: &&(&str, &str)| suites.iter().any(|suite| suite.is_one_of(&[**name]));
    match NAMED.into_iter().flatten().find(|name| !is_built(name)) {
        Some((package, name)) => failed(format!("there is no suite `{name}` of `{package}`")),
        None => Ok(suites),
    }
}

/// Returns the suites with these names, in the order of the names.
fn among<'a>(suites: &'a [Suite], list: &[(&str, &str)]) -> Vec<&'a Suite> {
    list.iter()
        .flat_map(|&name| suites.iter().filter(move |suite| suite.is_one_of(&[name])))
        .collect()
}

/// How the suites are run.
pub(crate) struct SuiteRun<'a> {
    /// The arguments for each suite.
    pub(crate) arguments: &'a [String],
    /// The environment of each suite.
    pub(crate) variables: Vec<(&'static str, Option<String>)>,
    /// The longest time of a suite.
    pub(crate) limit: Option<Duration>,
}

impl SuiteRun<'_> {
    /// Runs suites, and beside them the examples in the documentation and other checks. Passes each
    /// line of their output to `see`. A suite that fails does not stop the others, so one run shows
    /// all failures.
    pub(crate) fn run(
        &self,
        suites: &[Suite],
        checks: &[(&str, Command)],
        see: impl FnMut(&str) + Send,
    ) -> Result<()> {
        let (computing, patient) = (among(suites, &COMPUTING), among(suites, &PATIENT));
        let alone = among(suites, &ALONE);
        let is_first = |suite: &&Suite| !NAMED.iter().any(|list| suite.is_one_of(list));
        let first: Vec<_> = suites.iter().filter(is_first).collect();
        let report = Mutex::new(Report { see, done: Vec::new(), failed: Vec::new() });
        let second = || {
            self.run_lane(&computing, &report)?;
            for (name, command) in checks {
                self.run_one(name, with_lowest_priority(command), &report)?;
            }
            // Some examples wait for nodes, with a deadline.
            self.run_one("documentation", documented_examples(self.arguments)?, &report)?;
            self.run_lane(&patient, &report)
        };
        thread::scope(|scope| {
            let second = scope.spawn(second);
            let first = self.run_lane(&first, &report);
            let second = second.join().unwrap_or_else(|_| failed("a lane of suites panicked"));
            first.and(second)
        })?;
        self.run_lane(&alone, &report)?;
        let report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
        eprint!("\nThe slowest suites:\n{}", slowest(report.done));
        match report.failed.as_slice() {
            [] => Ok(()),
            suites => failed(format!("suites failed: {}", suites.join(", "))),
        }
    }

    fn run_lane<S>(&self, suites: &[&Suite], report: &Mutex<Report<S>>) -> Result<()>
    where
        S: FnMut(&str) + Send,
    {
        for suite in suites {
            let name = format!("{} {}", suite.package, suite.name);
            self.run_one(&name, suite.command(self.arguments), report)?;
        }
        Ok(())
    }

    /// Runs one suite. Its output is printed when it has ended, because two suites run at once.
    fn run_one<S>(&self, name: &str, mut command: Command, report: &Mutex<Report<S>>) -> Result<()>
    where
        S: FnMut(&str) + Send,
    {
        for (variable, value) in &self.variables {
            match value {
                Some(value) => command.env(variable, value),
                None => command.env_remove(variable),
            };
        }
        eprintln!("--> {name}");
        let (started, mut lines) = (Instant::now(), Vec::new());
        let ended = process::run_reading_all(&mut command, self.limit, |line| {
            lines.push(line.to_owned());
        });
        let time = started.elapsed();
        let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
        println!("\n{name}: {:.1} s", time.as_secs_f64());
        for line in &lines {
            (report.see)(line);
            println!("{line}");
        }
        report.done.push((time, name.to_owned()));
        match ended {
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => {
                println!("{name}: {error}");
                report.failed.push(name.to_owned());
            }
            Ok(()) => {}
        }
        Ok(())
    }
}

/// What the suites have reported.
struct Report<S> {
    /// Takes each line of output.
    see: S,
    done: Vec<(Duration, String)>,
    failed: Vec<String>,
}

/// Returns the command that builds and runs the examples in the documentation.
fn documented_examples(arguments: &[String]) -> Result<Command> {
    let mut command = cargo(&["test", "--workspace", "--doc", "--no-fail-fast", "--"])?;
    command.args(arguments);
    Ok(command)
}

/// Returns the same command, with the lowest priority.
fn with_lowest_priority(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        nice.current_dir(folder);
    }
    nice
}

/// Returns one line for each of the suites that took longest.
fn slowest(mut done: Vec<(Duration, String)>) -> String {
    done.sort_by(|one, other| other.cmp(one));
    let line =
        |(time, name): &(Duration, String)| format!("{:>7.1} s  {name}\n", time.as_secs_f64());
    done.iter().take(SLOWEST).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_are_read_from_the_messages_of_cargo() {
        let message = |test: bool, id: &str| {
            serde_json::json!({
                "reason": "compiler-artifact", "package_id": id, "executable": "/t/deps/a-1",
                "manifest_path": "/w/crates/a/Cargo.toml", "profile": { "test": test },
                "target": { "name": "basics" },
            })
            .to_string()
        };
        let suite = |package: &str| Suite {
            package: package.to_owned(),
            name: "basics".to_owned(),
            program: "/t/deps/a-1".into(),
            folder: "/w/crates/a".into(),
        };
        let read = |id: &str| Suite::read(&message(true, id));
        assert_eq!(read("path+file:///w/crates/a#vvm-a@0.1.0"), Some(suite("vvm-a")));
        assert_eq!(read("path+file:///w/crates/a#0.1.0"), Some(suite("a")));
        assert_eq!(Suite::read(&message(false, "path+file:///w/crates/a#0.1.0")), None);
        assert_eq!(Suite::read(r#"{"reason":"build-finished"}"#), None);
        assert_eq!(Suite::read("no message"), None);
    }

    #[test]
    fn all_suites_run_and_those_that_failed_are_named() {
        let suite = |name: &str| Suite {
            package: "p".to_owned(),
            name: name.to_owned(),
            program: "sh".into(),
            folder: "/".into(),
        };
        let run = |code: &str| {
            let text = format!("echo said $WORD >&2; exit {code}");
            let arguments = ["-c".to_owned(), text];
            let variables = vec![("WORD", Some("yes".to_owned()))];
            let run = SuiteRun { arguments: &arguments, variables, limit: None };
            let report = Mutex::new(Report {
                see: |line: &str| assert_eq!(line, "said yes"),
                done: Vec::new(),
                failed: Vec::new(),
            });
            run.run_lane(&[&suite("one"), &suite("two")], &report).unwrap();
            report.into_inner().unwrap().failed
        };
        assert_eq!(run("0"), Vec::<String>::new());
        assert_eq!(run("3"), ["p one", "p two"]);
    }

    #[test]
    fn the_slowest_suites_come_first() {
        let done = vec![
            (Duration::from_secs(1), "quick".to_owned()),
            (Duration::from_secs(70), "slow".to_owned()),
        ];
        assert_eq!(slowest(done), "   70.0 s  slow\n    1.0 s  quick\n");
    }
}
