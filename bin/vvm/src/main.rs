//! The `vvm` binary: the only place that names drivers, installs logging and ends the process.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod access_risks;
mod advice;
mod answer_text;
mod apps_command;
mod backup_command;
mod bench;
mod cassandra_servers;
mod cli;
mod clock_skew;
mod cluster_command;
mod command_error;
mod config;
mod config_command;
mod doctor;
mod elections_verify;
mod export_command;
mod follow_command;
mod inspect_command;
mod latency;
mod lazy_driver;
mod log_filter;
mod logs;
mod manual;
mod metrics;
mod named_storage;
mod new_file;
mod node_client;
mod numbers_command;
mod output;
mod private_file;
mod progress;
mod read_ahead;
mod regular_file;
mod repair_command;
mod report;
mod scratch;
mod sequences_command;
mod serve;
mod signals;
mod status;
mod storage_check;
mod storage_target;
mod storage_verify;
mod streamed_answer;
mod token_command;
mod trusted_file;

use std::process::ExitCode;

use clap::Parser;
use cli::{Cli, CliCommand, DevArgs, ElectionsCommand, ServeArgs, StorageCommand};
use command_error::CommandError;
use config::VvmConfig;
use logs::say;
use mimalloc::MiMalloc;
use output::print;
use storage_target::StorageTarget;
use tokio::runtime::{Builder, Runtime};

/// A command makes many small allocations. With this allocator a command takes about a tenth less
/// time.
#[global_allocator]
static MEMORY: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let command = Cli::parse().command.unwrap_or_else(|| CliCommand::Serve(ServeArgs::default()));
    let code = run(command).unwrap_or_else(|failure| {
        say(format!("error: {failure}"));
        ExitCode::from(failure.code())
    });
    logs::finish();
    code
}

fn run(command: CliCommand) -> Result<ExitCode, CommandError> {
    let as_json = command.prints_json();
    match command {
        CliCommand::Elections(ElectionsCommand::Verify(args)) => {
            logs::install(CHECK_LOG_FILTER, as_json)?;
            on_runtime(elections_verify::run(args))
        }
        CliCommand::Storage(StorageCommand::Verify(args)) => {
            logs::install(CHECK_LOG_FILTER, as_json)?;
            on_runtime(storage_verify::run(args))
        }
        CliCommand::Storage(StorageCommand::Check(args)) => {
            logs::install(CHECK_LOG_FILTER, as_json)?;
            storage_check::run(args)
        }
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
        CliCommand::Config(command) => config_command::run(command),
        CliCommand::Status(args) => on_runtime(status::run(args)),
        CliCommand::Cluster(command) => on_runtime(cluster_command::run(command)),
        CliCommand::Bench(args) => on_runtime(bench::run(args)),
        CliCommand::Logs(command) => on_runtime(follow_command::run(command)),
        CliCommand::Numbers(command) => on_runtime(numbers_command::run(command)),
        CliCommand::Sequences(command) => on_runtime(sequences_command::run(command)),
        CliCommand::Token(command) => token_command::run(command),
        CliCommand::Repair(command) => on_runtime(repair_command::run(command)),
        CliCommand::Inspect(command) => {
            logs::install(CHECK_LOG_FILTER, as_json)?;
            on_runtime(inspect_command::run(command))
        }
        CliCommand::Apps(command) => {
            logs::install(CHECK_LOG_FILTER, as_json)?;
            on_runtime(apps_command::run(command))
        }
        CliCommand::Backup(args) => on_runtime(backup_command::run_backup(args)),
        CliCommand::Restore(args) => backup_command::run_restore(args),
        CliCommand::Export(args) => {
            logs::install(CHECK_LOG_FILTER, as_json)?;
            on_runtime(export_command::run_export(args))
        }
        CliCommand::Import(args) => {
            logs::install(CHECK_LOG_FILTER, as_json)?;
            on_runtime(export_command::run_import(args))
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

/// The log filter of the commands that check a storage: problems, for a person to read. `RUST_LOG`
/// can ask for more.
///
/// The clients of databases log each failed attempt, and the command reports the outcome, so these
/// clients are off. The trials of elections make calls fail on purpose, so elections log only
/// errors.
const CHECK_LOG_FILTER: &str = "warn,scylla=off,aws_config=off,ielections=error";
