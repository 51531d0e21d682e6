//! The arguments of `cargo xtask rounds`.

use crate::{
    defects::Defect,
    error::{Error, Result},
};

/// The option that names a defect of the nodes. The program does not know it.
const DEFECT: &str = "--defect";

/// The option that names the program of the nodes.
const VVM: &str = "--vvm";

/// The help. The program has a longer one, but would have to be built for it.
pub(super) const HELP: &str = "\
Makes faults in a cluster of real nodes, and checks that it keeps its promises

Usage: cargo xtask rounds [OPTIONS]
       cargo xtask rounds --defect NAME
       cargo xtask rounds check FILE

Without a command it builds the nodes, starts the server of the storage, makes faults under load,
and checks what the clients saw. `check FILE` checks a kept history again. docs/testing.md explains
the faults and the checks.

Options:
  --storage STORAGE  cassandra (default), cassandra_cluster, dynamodb or redb
  --minutes MINUTES  how long faults are made; 3 by default
  --seed SEED        decides the faults; a random one by default
  --nodes NODES      the number of nodes; 3 by default, always 1 with redb
  --level LEVEL      the trust level; 0 by default. Level 2 is not possible with dynamodb
  --faults FAULTS    kinds of faults, separated by commas: kill, pause, stop, step_down, drain,
                     storage_link, client_link, peer_link, kill_server, pause_server, full_disk,
                     clock; all that are possible by default
  --clients CLIENTS  the number of clients; 24 by default
  --pause-ms MILLIS  the longest pause of a client between two requests; 200 by default
  --vvm PROGRAM      the program of the nodes; the one of this checkout by default
  --defect NAME      puts a defect of tests/defects into the nodes. Without other options the run is
                     that of tests/defects/list.json. Another option replaces all options of the
                     list. The exit code is 0 only if the check of the list has found the defect
  --help             prints this help

The exit code is 0 if all promises were kept, 1 if one was broken or the program could not do its
work, and 2 after wrong usage.
";

/// What the arguments ask for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RoundsCommand {
    Help,
    /// Checks a history again, with these arguments.
    Check(Vec<String>),
    Run {
        defect: Option<Defect>,
        /// The arguments for the program.
        arguments: Vec<String>,
    },
}

impl RoundsCommand {
    /// Reads the arguments.
    ///
    /// # Errors
    /// A defect that is not known, and options that exclude each other.
    pub(super) fn of(arguments: &[String], known: Vec<Defect>) -> Result<RoundsCommand> {
        if arguments.iter().any(|argument| matches!(&**argument, "--help" | "-h")) {
            return Ok(RoundsCommand::Help);
        }
        let names = known.iter().map(|defect| &*defect.name).collect::<Vec<_>>().join(", ");
        let wrong = |why: String| Error::Usage(format!("{why}. The defects are {names}"));
        let (named, rest) = split(arguments);
        let is_check = rest.first().is_some_and(|first| first == "check");
        let name = match &named[..] {
            [] if is_check => return Ok(RoundsCommand::Check(rest[1..].to_vec())),
            [] => return Ok(RoundsCommand::Run { defect: None, arguments: rest }),
            [name] => name.as_deref().filter(|name| !name.is_empty() && !name.starts_with('-')),
            _ => return Err(wrong(format!("a run has one {DEFECT}"))),
        };
        let name = name.ok_or_else(|| wrong(format!("{DEFECT} needs the name of a defect")))?;
        if is_check {
            return Err(wrong(format!("`check` runs no nodes, so it takes no {DEFECT}")));
        }
        if rest.iter().any(|argument| is_option(argument, VVM)) {
            let why = format!("{DEFECT} and {VVM} both name the program of the nodes");
            return Err(wrong(why));
        }
        let defect = known.iter().find(|defect| defect.name == name);
        let defect = defect.ok_or_else(|| wrong(format!("there is no defect `{name}`")))?.clone();
        let arguments = if rest.is_empty() { defect.arguments.clone() } else { rest };
        Ok(RoundsCommand::Run { defect: Some(defect), arguments })
    }
}

fn is_option(argument: &str, option: &str) -> bool {
    argument.strip_prefix(option).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
}

/// Returns the values of `--defect`, `None` for one without a value, and the other arguments.
fn split(arguments: &[String]) -> (Vec<Option<String>>, Vec<String>) {
    let (mut named, mut rest) = (Vec::new(), Vec::new());
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if !is_option(argument, DEFECT) {
            rest.push(argument.clone());
        } else if let Some((_, name)) = argument.split_once('=') {
            named.push(Some(name.to_owned()));
        } else {
            named.push(arguments.next().cloned());
        }
    }
    (named, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Vec<Defect> {
        ["hole", "twice"]
            .map(|name| Defect {
                name: name.to_owned(),
                check: "logs".to_owned(),
                arguments: vec!["--seed".to_owned(), "7".to_owned()],
            })
            .to_vec()
    }

    fn command(line: &str) -> Result<RoundsCommand> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        RoundsCommand::of(&arguments, known())
    }

    #[test]
    fn a_wrong_defect_is_wrong_usage_that_names_the_defects() {
        for line in [
            "--defect none",
            "--defect",
            "--defect=",
            "--defect --seed 1",
            "--seed 1 --defect",
            "--defect hole --defect hole",
            "--defect=hole --seed 1 --defect twice",
            "--defect hole --vvm target/debug/vvm",
            "--vvm=vvm --defect hole",
            "check history.jsonl --defect hole",
            "--defect hole check history.jsonl",
        ] {
            let error = command(line).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
            assert!(error.to_string().ends_with("The defects are hole, twice"), "{error}");
        }
    }

    #[test]
    fn the_program_does_not_get_the_defect() {
        for line in ["--seed 1 --defect hole --level 0", "--seed 1 --defect=hole --level 0"] {
            let RoundsCommand::Run { defect, arguments } = command(line).unwrap() else {
                panic!("{line}")
            };
            assert_eq!(defect, Some(known().remove(0)));
            assert_eq!(arguments, ["--seed", "1", "--level", "0"]);
        }
        let RoundsCommand::Run { arguments, .. } = command("--defect hole").unwrap() else {
            panic!()
        };
        assert_eq!(arguments, ["--seed", "7"], "those of the list");
    }

    #[test]
    fn other_runs_and_checks_have_no_defect() {
        let arguments = vec!["--vvm".to_owned(), "vvm".to_owned()];
        assert_eq!(command("--vvm vvm").unwrap(), RoundsCommand::Run { defect: None, arguments });
        assert_eq!(
            command("check a.jsonl").unwrap(),
            RoundsCommand::Check(vec!["a.jsonl".to_owned()])
        );
    }

    #[test]
    fn the_help_has_all_options_and_needs_no_program() {
        for line in ["--help", "-h", "--storage redb --help", "check --help", "--defect --help"] {
            assert_eq!(command(line).unwrap(), RoundsCommand::Help, "{line}");
        }
        assert!(HELP.contains("check FILE"));
        let text = include_str!("../../../../docs/testing.md");
        let (_, table) =
            text.split_once("| option | default | meaning |\n|---|---|---|\n").unwrap();
        let rows: Vec<&str> = table.lines().take_while(|line| line.starts_with('|')).collect();
        assert!(rows.len() > 8, "{rows:?}");
        for row in rows {
            let option = row.split('`').nth(1).unwrap();
            assert!(HELP.contains(&format!("\n  {option} ")), "{option}");
        }
    }
}
