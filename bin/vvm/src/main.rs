//! The `vvm` binary: the only place that names drivers, installs logging and ends the process.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod advice;
mod cli;
mod config;
mod elections_verify;
mod failure;
mod latency;
mod progress;
mod report;
mod scratch;
mod signals;
mod skew;
mod storage_verify;
mod target;

use std::{
    fmt::Display,
    io::{IsTerminal, Write},
    process::ExitCode,
};

use clap::Parser;
use cli::{Cli, Command, ElectionsCommand, StorageCommand};
use failure::Failure;
use mimalloc::MiMalloc;
use tracing_subscriber::EnvFilter;

/// A command is many small pieces of memory, and takes about a tenth less time with this one.
#[global_allocator]
static MEMORY: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let command = Cli::parse().command;
    install_logging(command.prints_json());
    match run(command) {
        Ok(code) => code,
        Err(failure) => {
            say(format!("error: {failure}"));
            failure.exit_code()
        }
    }
}

fn run(command: Command) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Runtime::new().map_err(Failure::runtime)?;
    let code = runtime.block_on(async {
        match command {
            Command::Elections(ElectionsCommand::Verify(args)) => elections_verify::run(args).await,
            Command::Storage(StorageCommand::Verify(args)) => storage_verify::run(args).await,
        }
    });
    // Not waiting for what is still under way: who asks to leave at once gets that.
    runtime.shutdown_background();
    code
}

/// What goes wrong besides, for a person; `RUST_LOG` asks for more. The clients report each failed attempt, and we what
/// came of it; the trials of elections let calls fail on purpose.
const LOGGED: &str = "warn,scylla=off,aws_config=off,ielections=error";

/// Logs go to stderr, as text, or as JSON if the result is.
fn install_logging(as_json: bool) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(LOGGED));
    let logs = tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(filter);
    if as_json {
        logs.json().init();
    } else {
        logs.with_ansi(std::io::stderr().is_terminal()).init();
    }
}

/// A line for the person who started us. Nobody may be there to read it any more, and that must not keep us from
/// cleaning up: `eprintln` would panic.
fn say(line: impl Display) {
    writeln!(std::io::stderr(), "{line}").ok();
}
