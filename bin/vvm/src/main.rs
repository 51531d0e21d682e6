//! The `vvm` binary: the only place that names drivers, installs logging and ends the process.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod advice;
mod cli;
mod config;
mod failure;
mod latency;
mod report;
mod skew;
mod target;
mod verify;

use std::{io::IsTerminal, process::ExitCode};

use clap::Parser;
use cli::{Cli, Command, StorageCommand};
use failure::Failure;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let cli = Cli::parse();
    install_logging();
    match run(cli) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("error: {failure}");
            failure.exit_code()
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Runtime::new().map_err(Failure::runtime)?;
    match cli.command {
        Command::Storage(StorageCommand::Verify(args)) => runtime.block_on(verify::run(args)),
    }
}

/// Logs go to stderr; `RUST_LOG` says which.
fn install_logging() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    let logs = tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(filter);
    if std::io::stderr().is_terminal() {
        logs.init();
    } else {
        logs.json().init();
    }
}
