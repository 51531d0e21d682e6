//! The `vvm` binary: the only place that names drivers, installs logging and ends the process.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod advice;
mod bench;
mod cli;
mod config;
mod config_command;
mod elections_verify;
mod failure;
mod latency;
mod metrics;
mod progress;
mod report;
mod scratch;
mod serve;
mod signals;
mod skew;
mod status;
mod storage_verify;
mod target;

use std::{
    fmt::Display,
    io::{IsTerminal, Write},
    process::ExitCode,
};

use clap::Parser;
use cli::{Cli, Command, DevArgs, ElectionsCommand, ServeArgs, StorageCommand};
use failure::Failure;
use mimalloc::MiMalloc;
use target::Target;
use tracing_subscriber::EnvFilter;

/// A command is many small pieces of memory, and takes about a tenth less time with this one.
#[global_allocator]
static MEMORY: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let command = Cli::parse().command.unwrap_or_else(|| Command::Serve(ServeArgs::default()));
    match run(command) {
        Ok(code) => code,
        Err(failure) => {
            say(format!("error: {failure}"));
            failure.exit_code()
        }
    }
}

fn run(command: Command) -> Result<ExitCode, Failure> {
    let as_json = command.prints_json();
    match command {
        Command::Elections(ElectionsCommand::Verify(args)) => {
            install_logging(LOGGED, as_json);
            on_runtime(elections_verify::run(args))
        }
        Command::Storage(StorageCommand::Verify(args)) => {
            install_logging(LOGGED, as_json);
            on_runtime(storage_verify::run(args))
        }
        Command::Serve(args) => {
            let config = serve::configuration(&args)?;
            install_logging(&config.log.filter, config.log.format.is_json());
            on_runtime(serve::run(config, None))
        }
        Command::Dev(DevArgs { listen, admin }) => {
            let config = serve::configuration(&ServeArgs { config: None, listen, admin })?;
            install_logging(&config.log.filter, config.log.format.is_json());
            on_runtime(serve::run(config, Some(Target::Mem)))
        }
        Command::Config(command) => config_command::run(command),
        Command::Status(args) => on_runtime(status::run(args)),
        Command::Bench(args) => on_runtime(bench::run(args)),
    }
}

fn on_runtime(work: impl Future<Output = Result<ExitCode, Failure>>) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Runtime::new().map_err(Failure::runtime)?;
    let code = runtime.block_on(work);
    // Not waiting for what is still under way: who asks to leave at once gets that.
    runtime.shutdown_background();
    code
}

/// What goes wrong besides, for a person; `RUST_LOG` asks for more. The clients report each failed attempt, and we what
/// came of it; the trials of elections let calls fail on purpose.
const LOGGED: &str = "warn,scylla=off,aws_config=off,ielections=error";

/// Logs go to stderr, as text or as JSON.
fn install_logging(filter: &str, as_json: bool) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(filter));
    let logs = tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(filter);
    if as_json {
        logs.json().init();
    } else {
        logs.with_ansi(std::io::stderr().is_terminal()).init();
    }
}

/// What was asked for, to stdout.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::unfinished(format!("cannot write the result: {error}")))
}

/// A line for the person who started us. Nobody may be there to read it any more, and that must not keep us from
/// cleaning up: `eprintln` would panic.
fn say(line: impl Display) {
    writeln!(std::io::stderr(), "{line}").ok();
}
