//! `vvm storage`: checks of a storage that no node uses.

mod check;
mod verify;

use std::process::ExitCode;

use clap::Subcommand;

pub(crate) use self::verify::VerifyArgs;
use crate::{CommandError, NodeConfiguration, StorageArgs, verify::VERIFY_EXIT_HELP};

#[derive(Debug, Subcommand)]
pub enum StorageCommand {
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

pub(crate) async fn run(
    command: StorageCommand,
    node: NodeConfiguration,
) -> Result<ExitCode, CommandError> {
    match command {
        StorageCommand::Verify(args) => verify::run(args, node).await,
        StorageCommand::Check(args) => check::run(args, node),
    }
}
