//! The `vvm` binary. It names the storage drivers, as `ctl` does, installs logging, and ends the
//! process.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod access_risks;
mod cli;
mod config;
mod config_command;
mod doctor;
mod lazy_driver;
mod log_filter;
mod logs;
mod manual;
mod metrics;
mod serve;
mod trusted_file;

use std::{process::ExitCode, time::Duration};

use clap::Parser;
use cli::{Cli, CliCommand, DevArgs, ServeArgs};
use config::VvmConfig;
use ctl::{CommandError, StorageTarget, terminal};
use mimalloc::MiMalloc;
use tokio::runtime::{Builder, Runtime};

/// A command makes many small allocations. With this allocator a command takes about a tenth less
/// time.
#[global_allocator]
static MEMORY: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let command = Cli::parse().command.unwrap_or_else(|| CliCommand::Serve(ServeArgs::default()));
    let code = run(command).unwrap_or_else(|failure| {
        terminal::say(format!("error: {failure}"));
        ExitCode::from(failure.code())
    });
    terminal::finish(LAST_LINES);
    code
}

/// The most time to write the last lines of the log.
const LAST_LINES: Duration = Duration::from_secs(1);

fn run(command: CliCommand) -> Result<ExitCode, CommandError> {
    match command {
        CliCommand::Serve(args) => {
            let config = serve::configuration(&args)?;
            logs::install(&config.log.filter, config.log.format.is_json())?;
            serve(config, None)
        }
        CliCommand::Dev(DevArgs { listen, admin }) => {
            let config = serve::configuration(&ServeArgs { config: None, listen, admin })?;
            logs::install(&config.log.filter, config.log.format.is_json())?;
            serve(config, Some(StorageTarget::Mem))
        }
        CliCommand::Config(command) => on_runtime(config_command::run(command)),
        CliCommand::Ctl(command) => {
            if let Some(as_json) = command.logs_as_json() {
                logs::install(COMMAND_LOG_FILTER, as_json)?;
            }
            on_runtime(command.run(serve::NODE_CONFIGURATION))
        }
        CliCommand::Doctor(args) => on_runtime(doctor::run(args)),
        CliCommand::Completions { shell } => manual::completions(shell),
        CliCommand::Man { folder } => manual::pages(&folder),
    }
}

/// Runs a node on two runtimes. Requests and partitions use a runtime with one thread for each
/// core. The other runtime renews the lease and answers on the admin endpoint, however busy the
/// first runtime is.
fn serve(config: VvmConfig, storage: Option<StorageTarget>) -> Result<ExitCode, CommandError> {
    let requests = runtime(Builder::new_multi_thread().thread_name("requests"))?;
    let mut control = Builder::new_multi_thread();
    let control = runtime(control.worker_threads(CONTROL_THREADS).thread_name("control"))?;
    let code = run_on(control, serve::run(config, storage, requests.handle().clone()));
    requests.shutdown_background();
    code
}

/// One thread renews the lease while the other one answers on the admin endpoint.
const CONTROL_THREADS: usize = 2;

fn runtime(builder: &mut Builder) -> Result<Runtime, CommandError> {
    builder.enable_all().build().map_err(CommandError::runtime)
}

fn on_runtime(
    work: impl Future<Output = Result<ExitCode, CommandError>>,
) -> Result<ExitCode, CommandError> {
    run_on(runtime(&mut Builder::new_multi_thread())?, work)
}

fn run_on(
    runtime: Runtime,
    work: impl Future<Output = Result<ExitCode, CommandError>>,
) -> Result<ExitCode, CommandError> {
    let code = runtime.block_on(work);
    // Do not wait for work that is still under way: after a second signal the process must end at
    // once.
    runtime.shutdown_background();
    code
}

/// The log filter of the commands that use a storage: problems, for a person to read. `RUST_LOG`
/// can ask for more.
///
/// The clients of databases log each failed attempt, and the command reports the outcome, so these
/// clients are off. The trials of elections make calls fail on purpose, so elections log only
/// errors.
const COMMAND_LOG_FILTER: &str = "warn,scylla=off,aws_config=off,ielections=error";
