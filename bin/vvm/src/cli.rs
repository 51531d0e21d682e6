//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::{failure::Failure, target::Target};

/// A node of an event-sourced application platform.
#[derive(Debug, Parser)]
#[command(name = "vvm", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check elections over a storage.
    #[command(subcommand, arg_required_else_help = true)]
    Elections(ElectionsCommand),
    /// Check a storage.
    #[command(subcommand, arg_required_else_help = true)]
    Storage(StorageCommand),
}

impl Command {
    /// Whether its result is for a program.
    pub(crate) fn prints_json(&self) -> bool {
        match self {
            Command::Elections(ElectionsCommand::Verify(args)) => args.json,
            Command::Storage(StorageCommand::Verify(args)) => args.json,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum StorageCommand {
    /// Prove a storage: run the conformance suite against it, and measure it.
    #[command(after_long_help = HOW_VERIFY_ENDS)]
    Verify(VerifyArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ElectionsCommand {
    /// Prove elections over a storage: run their suite on it, and measure how soon another node takes over.
    #[command(after_long_help = HOW_VERIFY_ENDS)]
    Verify(VerifyElectionsArgs),
}

/// What both commands leave behind, and their exit codes.
const HOW_VERIFY_ENDS: &str = "\
    Works in scratch keyspaces of its own that are dropped afterwards, also after Ctrl-C, and touches nothing else. A \
    redb file that did not exist is made, and stays. Without --storage and --config it verifies the default storage, \
    redb, in a folder of its own inside the current one, which is removed afterwards.\n\n\
    Exit codes: 0 no trial failed, and some passed; 1 a trial failed, none passed, or the run \
    could not be finished; 2 wrong usage, or no trial's name contains --filter; 3 wrong configuration; \
    4 the storage could not be reached or opened.";

/// Which storage.
#[derive(Debug, Args)]
pub(crate) struct StorageArgs {
    /// The storage: mem, redb:PATH, cassandra:HOST:PORT or dynamodb:ENDPOINT.
    #[arg(long, value_name = "STORAGE", conflicts_with = "config")]
    pub(crate) storage: Option<Target>,

    /// The storage that this configuration file names.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyElectionsArgs {
    #[command(flatten)]
    pub(crate) storage: StorageArgs,

    /// Only trials whose name contains this.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) filter: String,

    /// How often a takeover is measured, both after a release and after a crash; 0 for not at all.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) takeovers: u16,

    /// How long leases last where takeovers are measured, in seconds; the trials choose their own.
    #[arg(long, value_name = "SECONDS", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) lease: u64,

    /// Print the result, and logs, as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) storage: StorageArgs,

    /// Only trials whose name contains this.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) filter: String,

    /// How often each operation is called to measure it; 0 for not at all.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(crate) calls: u16,

    /// Print the result, and logs, as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The trials whose name contains the filter.
pub(crate) fn filtered<T>(
    trials: impl Iterator<Item = &'static T>,
    name: fn(&T) -> &'static str,
    filter: &str,
) -> Result<Vec<&'static T>, Failure> {
    let filtered: Vec<_> = trials.filter(|trial| name(trial).contains(filter)).collect();
    match filtered.is_empty() {
        true => Err(Failure::usage(format!("no trial's name contains `{filter}`"))),
        false => Ok(filtered),
    }
}
