//! Rounds of faults on a cluster of real nodes over a real storage, and checks of what happened.
//!
//! `cargo xtask rounds` runs this program. `docs/testing.md` explains the faults and the checks.

mod api;
mod bounds;
mod checks;
mod clients;
mod cluster;
mod faults;
mod final_state;
mod history;
mod leaders;
mod nemesis;
mod network;
mod node;
mod page;
mod real_time_order;
mod recorder;
mod report;
mod run;
mod shim;
mod smallest;
mod storage;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};
use tokio::signal::{
    ctrl_c,
    unix::{SignalKind, signal},
};
use vvm_tests::bench::BenchError;

use self::run::RunArgs;

/// Makes faults in a cluster of nodes, and checks that it keeps its promises.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: RoundsCommand,
}

#[derive(Debug, Subcommand)]
enum RoundsCommand {
    /// Starts a cluster, makes faults under load, and checks the history.
    Run(RunArgs),
    /// Checks the history of an earlier run again.
    Check {
        /// The file `history.jsonl` of the run.
        file: PathBuf,
    },
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<ExitCode, BenchError> {
    let is_kept = match Args::parse().command {
        // An end of the run by its future ends the nodes, and resumes all that stands still.
        RoundsCommand::Run(args) => tokio::select! {
            is_kept = run::run(args) => is_kept?,
            interrupted = interrupted() => return Err(interrupted?.into()),
        },
        RoundsCommand::Check { file } => check(&file)?,
    };
    Ok(if is_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Waits for a signal that ends the run, and returns its name.
async fn interrupted() -> std::io::Result<&'static str> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        ended = ctrl_c() => ended.map(|()| "interrupted"),
        _ = terminate.recv() => Ok("terminated"),
    }
}

fn check(file: &std::path::Path) -> Result<bool, BenchError> {
    let history = history::read(file)?;
    let violations = checks::run_all(&history);
    let parts = smallest::WrongPart::of_all(&history, &violations);
    print!("{}", report::violations_text(&history, &violations, &parts));
    checks::limits(&history).into_iter().for_each(|limits| println!("{limits}"));
    Ok(violations.is_empty() && history.broken.is_empty())
}

#[cfg(test)]
mod tests {
    use clock::Clock;

    use super::*;
    use crate::{history::Line, recorder::Recorder};

    #[test]
    fn a_check_reports_what_the_run_itself_found_broken() {
        let folder = tempfile::tempdir().unwrap();
        for broken in [None, Some("node 1 has 600 MiB of memory")] {
            let file = folder.path().join(format!("{}.jsonl", broken.is_some()));
            let first = Line::Run { seed: 1, settings: String::new() };
            let recorder = Recorder::create(&file, Clock::system(), &first).unwrap();
            broken.into_iter().for_each(|text| recorder.broken(text.to_owned()));
            let recorded = recorder.end().unwrap().history.broken;
            assert_eq!(recorded, broken.into_iter().collect::<Vec<_>>());
            assert_eq!(history::read(&file).unwrap().broken, recorded);
            assert_eq!(check(&file).unwrap(), broken.is_none());
        }
    }
}
