//! The commands of operators.

use std::process::ExitCode;

use clap::Subcommand;

use crate::{
    CommandError, NodeConfiguration,
    apps::{self, AppsCommand},
    backup::{self, BackupArgs, RestoreArgs},
    bench::{self, BenchArgs},
    cluster::{self, ClusterCommand},
    elections::{self, ElectionsCommand},
    export::{self, ExportArgs, ImportArgs},
    inspect::{self, InspectCommand},
    logs::{self, LogsCommand},
    numbers::{self, NumbersCommand},
    repair::{self, RepairCommand},
    status::{self, StatusArgs},
    storage::{self, StorageCommand},
    token::{self, TokenCommand},
};

/// A command of operators, as the command line gives it.
#[derive(Debug, Subcommand)]
pub enum CtlCommand {
    /// Show the state of a running node.
    Status(StatusArgs),
    /// Show the cluster of a running node, move partitions between its nodes, drain a node, and
    /// pause balancing.
    #[command(subcommand, arg_required_else_help = true)]
    Cluster(ClusterCommand),
    /// Send requests to a running node, and measure how long they take. The records and events of
    /// commands stay in the workspaces, and numbers that are drawn are used up.
    Bench(BenchArgs),
    /// Follow the logs of a running node.
    #[command(subcommand, arg_required_else_help = true)]
    Logs(LogsCommand),
    /// List, draw and explain the document numbers of a running node.
    #[command(subcommand, arg_required_else_help = true)]
    Numbers(NumbersCommand),
    /// List what keeps partitions of a running node from working, and repair it: restore or mark an
    /// event, or remove a foreign row.
    #[command(subcommand, arg_required_else_help = true)]
    Repair(RepairCommand),
    /// Show what a storage holds: applications, partitions, leases, logs, records, numbers and
    /// rows.
    #[command(subcommand, arg_required_else_help = true)]
    Inspect(InspectCommand),
    /// Check the records of an application, and change its trust level.
    #[command(subcommand, arg_required_else_help = true)]
    Apps(AppsCommand),
    /// Copy the redb file of a node, even while the node works, and verify the copy.
    Backup(BackupArgs),
    /// Make a new redb file from a backup, and verify it.
    Restore(RestoreArgs),
    /// Write an application as a stream of events, to move it to another storage.
    Export(ExportArgs),
    /// Write the application of an export into a storage, and make it available to nodes.
    Import(ImportArgs),
    /// Make keys and tokens for the clients of nodes, and show tokens.
    #[command(subcommand, arg_required_else_help = true)]
    Token(TokenCommand),
    /// Check elections over a storage.
    #[command(subcommand, arg_required_else_help = true)]
    Elections(ElectionsCommand),
    /// Check a storage.
    #[command(subcommand, arg_required_else_help = true)]
    Storage(StorageCommand),
}

impl CtlCommand {
    /// Returns whether the command logs, and whether its log is JSON. `None` if it does not log.
    pub fn logs_as_json(&self) -> Option<bool> {
        match self {
            CtlCommand::Elections(ElectionsCommand::Verify(args)) => Some(args.json),
            CtlCommand::Storage(StorageCommand::Verify(args)) => Some(args.json),
            CtlCommand::Inspect(command) => Some(command.is_json()),
            CtlCommand::Storage(StorageCommand::Check(_))
            | CtlCommand::Apps(_)
            | CtlCommand::Export(_)
            | CtlCommand::Import(_) => Some(false),
            _ => None,
        }
    }

    /// Runs the command, and returns the exit code of the program.
    ///
    /// # Errors
    /// The command could not be done.
    pub async fn run(self, node: NodeConfiguration) -> Result<ExitCode, CommandError> {
        match self {
            CtlCommand::Status(args) => status::run(args, node).await,
            CtlCommand::Cluster(command) => cluster::run(command, node).await,
            CtlCommand::Bench(args) => bench::run(args).await,
            CtlCommand::Logs(command) => logs::run(command).await,
            CtlCommand::Numbers(command) => numbers::run(command).await,
            CtlCommand::Repair(command) => repair::run(command, node).await,
            CtlCommand::Inspect(command) => inspect::run(command, node).await,
            CtlCommand::Apps(command) => apps::run(command, node).await,
            CtlCommand::Backup(args) => backup::run_backup(args, node).await,
            CtlCommand::Restore(args) => backup::run_restore(args, node),
            CtlCommand::Export(args) => export::run_export(args, node).await,
            CtlCommand::Import(args) => export::run_import(args, node).await,
            CtlCommand::Token(command) => token::run(command),
            CtlCommand::Elections(command) => elections::run(command, node).await,
            CtlCommand::Storage(command) => storage::run(command, node).await,
        }
    }
}

/// Reads a command line, which begins with the name of the program.
#[cfg(test)]
pub(crate) fn parsed<T: Into<std::ffi::OsString> + Clone>(
    line: impl IntoIterator<Item = T>,
) -> Result<CtlCommand, clap::Error> {
    #[derive(clap::Parser)]
    struct Line {
        #[command(subcommand)]
        command: CtlCommand,
    }
    <Line as clap::Parser>::try_parse_from(line).map(|line| line.command)
}
