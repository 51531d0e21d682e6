//! The commands that work on a storage without a node.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use tck::trial::Trial;

use crate::{command_error::CommandError, storage_target::StorageTarget};

#[derive(Debug, Subcommand)]
pub(crate) enum StorageCommand {
    /// Prove a storage: run the conformance suite against it, and measure it.
    #[command(after_long_help = VERIFY_EXIT_HELP)]
    Verify(VerifyArgs),
    /// Check each page and each row of a redb file that no node uses. The file is not changed.
    #[command(after_long_help = CHECK_EXIT_HELP)]
    Check(StorageArgs),
}

/// The help text of `vvm storage check`: the file that is checked, and the exit codes.
const CHECK_EXIT_HELP: &str = "\
    Without --storage and --config the command checks data/vvm.redb, the file of a node that was started without --config. \
    Stop the node first.\n\n\
    Exit codes: 0 the file is whole; 1 rows or pages are damaged: restore the file from a backup; 2 wrong usage; 3 wrong \
    configuration, or the file cannot be opened because it is damaged or belongs to another program; 4 the file could not \
    be read, or a node uses it.";

#[derive(Debug, Subcommand)]
pub(crate) enum ElectionsCommand {
    /// Prove elections over a storage: run their suite, and measure how soon another node takes
    /// over.
    #[command(after_long_help = VERIFY_EXIT_HELP)]
    Verify(VerifyElectionsArgs),
}

/// The help text of both `verify` commands: the keyspaces that they make and drop, and the exit
/// codes.
const VERIFY_EXIT_HELP: &str = "\
    The command creates scratch keyspaces, drops them at the end, also after Ctrl-C, and changes nothing else. If the redb \
    file does not exist, the command creates it and leaves it. Without --storage and --config the command verifies redb in \
    a new folder inside the current one, and removes that folder at the end.\n\n\
    Exit codes: 0 no trial failed, and some passed; 1 a trial failed, none passed, or the run \
    could not be finished; 2 wrong usage, or no trial's name contains --filter; 3 wrong configuration, \
    or the storage holds data of another program or version; 4 the storage could not be reached or opened.";

/// The storage that a command works on.
#[derive(Debug, Args)]
pub(crate) struct StorageArgs {
    /// The storage: mem, redb:PATH, cassandra:HOST:PORT or dynamodb:ENDPOINT.
    #[arg(long, value_name = "STORAGE", conflicts_with = "config")]
    pub(crate) storage: Option<StorageTarget>,

    /// The configuration file that names the storage. As for a node, a variable
    /// (VVM__STORAGE__DRIVER) overrides the file.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyElectionsArgs {
    #[command(flatten)]
    pub(crate) storage: StorageArgs,

    /// Run only the trials with this text in their names.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) filter: String,

    /// The number of takeovers to measure after a release, and the same number after a crash. 0
    /// measures none.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) takeovers: u16,

    /// The length of the leases of measured takeovers, in seconds. The trials choose their own
    /// lengths.
    #[arg(long, value_name = "SECONDS", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) lease: u64,

    /// Print the result and the logs as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) storage: StorageArgs,

    /// Run only the trials with this text in their names.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) filter: String,

    /// The number of calls of each operation to measure. 0 measures nothing.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(crate) calls: u16,

    /// Print the result and the logs as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Returns the trials with names that contain the filter.
pub(crate) fn filtered<C>(
    trials: impl Iterator<Item = &'static Trial<C>>,
    filter: &str,
) -> Result<Vec<&'static Trial<C>>, CommandError> {
    let filtered: Vec<_> = trials.filter(|trial| trial.name().contains(filter)).collect();
    match filtered.is_empty() {
        true => Err(CommandError::usage(format!("no trial's name contains `{filter}`"))),
        false => Ok(filtered),
    }
}
