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
mod logs;
mod metrics;
mod progress;
mod report;
mod scratch;
mod serve;
mod signals;
mod skew;
mod status;
mod storage_check;
mod storage_verify;
mod target;

use std::{io::Write, process::ExitCode};

use clap::Parser;
use cli::{Cli, Command, DevArgs, ElectionsCommand, ServeArgs, StorageCommand};
use config::Config;
use failure::Failure;
use logs::say;
use mimalloc::MiMalloc;
use target::Target;
use tokio::runtime::{Builder, Runtime};

/// A command makes many small allocations. With this allocator a command takes about a tenth less
/// time.
#[global_allocator]
static MEMORY: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let command = Cli::parse().command.unwrap_or_else(|| Command::Serve(ServeArgs::default()));
    let code = run(command).unwrap_or_else(|failure| {
        say(format!("error: {failure}"));
        failure.exit_code()
    });
    logs::finish();
    code
}

fn run(command: Command) -> Result<ExitCode, Failure> {
    let as_json = command.prints_json();
    match command {
        Command::Elections(ElectionsCommand::Verify(args)) => {
            logs::install(LOGGED, as_json)?;
            on_runtime(elections_verify::run(args))
        }
        Command::Storage(StorageCommand::Verify(args)) => {
            logs::install(LOGGED, as_json)?;
            on_runtime(storage_verify::run(args))
        }
        Command::Storage(StorageCommand::Check(args)) => {
            logs::install(LOGGED, as_json)?;
            storage_check::run(args)
        }
        Command::Serve(args) => {
            let config = serve::configuration(&args)?;
            logs::install(&config.log.filter, config.log.format.is_json())?;
            serve(config, None)
        }
        Command::Dev(DevArgs { listen, admin }) => {
            let config = serve::configuration(&ServeArgs { config: None, listen, admin })?;
            logs::install(&config.log.filter, config.log.format.is_json())?;
            serve(config, Some(Target::Mem))
        }
        Command::Config(command) => config_command::run(command),
        Command::Status(args) => on_runtime(status::run(args)),
        Command::Bench(args) => on_runtime(bench::run(args)),
    }
}

/// Runs a node on two runtimes. Requests and partitions use a runtime with one thread for each
/// core. The other runtime renews the lease and answers on the admin endpoint, however busy the
/// first runtime is.
fn serve(config: Config, storage: Option<Target>) -> Result<ExitCode, Failure> {
    let requests = runtime(Builder::new_multi_thread().thread_name("requests"))?;
    let mut control = Builder::new_multi_thread();
    let control = runtime(control.worker_threads(CONTROL_THREADS).thread_name("control"))?;
    let code = run_on(control, serve::run(config, storage, requests.handle().clone()));
    requests.shutdown_background();
    code
}

/// One thread renews the lease while the other one writes metrics.
const CONTROL_THREADS: usize = 2;

fn runtime(builder: &mut Builder) -> Result<Runtime, Failure> {
    builder.enable_all().build().map_err(Failure::runtime)
}

fn on_runtime(work: impl Future<Output = Result<ExitCode, Failure>>) -> Result<ExitCode, Failure> {
    run_on(runtime(&mut Builder::new_multi_thread())?, work)
}

fn run_on(
    runtime: Runtime,
    work: impl Future<Output = Result<ExitCode, Failure>>,
) -> Result<ExitCode, Failure> {
    let code = runtime.block_on(work);
    // Do not wait for work that is still under way: after a second signal the process must end at
    // once.
    runtime.shutdown_background();
    code
}

/// The log filter of the commands that check a storage: problems, for a person to read. `RUST_LOG`
/// can ask for more.
///
/// The clients of databases log each failed attempt, and the command reports the outcome, so these
/// clients are off. The trials of elections make calls fail on purpose, so elections log only
/// errors.
const LOGGED: &str = "warn,scylla=off,aws_config=off,ielections=error";

/// Prints the result of a command to stdout.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::unfinished(format!("cannot write the result: {error}")))
}
