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
use clock::Clock;
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
        // If the future of the run is dropped, the nodes end, and everything that stands still goes
        // on.
        RoundsCommand::Run(args) => tokio::select! {
            is_kept = run::run(args) => is_kept?,
            interrupted = interrupted() => return Err(interrupted?.into()),
        },
        RoundsCommand::Check { file } => {
            run::judge_again(&Clock::system(), &file, &mut |text| print!("{text}"))?
        }
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
