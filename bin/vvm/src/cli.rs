//! The command line.

mod apps;
mod backup;
mod bench;
mod cluster;
#[cfg(test)]
mod documented;
mod event_logs;
mod export;
mod inspect;
mod node_address;
mod numbers;
mod repair;
mod sequences;
mod storage;
mod token;

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand};

pub(crate) use self::{
    apps::{AppsCommand, SetLevelArgs},
    backup::{BACKUP_HELP, BackupArgs, RESTORE_HELP, RestoreArgs},
    bench::{BenchArgs, BenchRequests},
    cluster::{ClusterArgs, ClusterCommand, PartitionName},
    event_logs::{FollowArgs, LogsCommand},
    export::{EXPORT_HELP, ExportArgs, IMPORT_HELP, ImportArgs},
    inspect::{INSPECT_HELP, InspectArgs, InspectCommand},
    node_address::{ConnectionArgs, NodeAddress},
    numbers::{NumbersArgs, NumbersCommand},
    repair::{MarkArgs, NumberArgs, RepairCommand},
    sequences::{SequencesArgs, SequencesCommand},
    storage::{
        ElectionsCommand, StorageArgs, StorageCommand, VerifyArgs, VerifyElectionsArgs, filtered,
    },
    token::{KeygenArgs, NewTokenArgs, ShowTokenArgs, TokenCommand},
};

/// A node of an event-sourced application platform.
#[derive(Debug, Parser)]
#[command(
    name = "vvm",
    version,
    after_help = "Without a command, `vvm` runs `vvm serve`: a node on redb in ./data that serves only this machine."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<CliCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Run a node.
    #[command(after_long_help = SERVE_EXIT_HELP)]
    Serve(ServeArgs),
    /// Run a node in memory with the demo application, to try it.
    Dev(DevArgs),
    /// Check, show or create a configuration.
    #[command(subcommand, arg_required_else_help = true)]
    Config(ConfigCommand),
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
    /// Show the stored numbers of the sequences of a running node.
    #[command(subcommand, arg_required_else_help = true)]
    Sequences(SequencesCommand),
    /// List what keeps partitions of a running node from working, and repair it: restore or mark an
    /// event, or remove a foreign row.
    #[command(subcommand, arg_required_else_help = true)]
    Repair(RepairCommand),
    /// Show what a storage holds: applications, partitions, leases, logs, records, numbers and
    /// rows.
    #[command(subcommand, arg_required_else_help = true, after_long_help = INSPECT_HELP)]
    Inspect(InspectCommand),
    /// Change the trust level of an application.
    #[command(subcommand, arg_required_else_help = true)]
    Apps(AppsCommand),
    /// Copy the redb file of a node, also while the node works, and verify the copy.
    #[command(after_long_help = BACKUP_HELP)]
    Backup(BackupArgs),
    /// Make a new redb file from a backup, and verify it.
    #[command(after_long_help = RESTORE_HELP)]
    Restore(RestoreArgs),
    /// Write an application as a stream of events, to move it to another storage.
    #[command(after_long_help = EXPORT_HELP)]
    Export(ExportArgs),
    /// Write the application of an export into a storage, and make it available to nodes.
    #[command(after_long_help = IMPORT_HELP)]
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
    /// Check whether a node could run on this machine: the configuration, limits, clocks, ports,
    /// folders, the disk and the storage. No node is started.
    #[command(
        after_help = "The command ends with 1 if a check fails. A node starts in spite of warnings."
    )]
    Doctor(DoctorArgs),
    /// Print the completions of a shell.
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Write the manual pages, one for each command.
    Man {
        /// The folder of the pages.
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
}

impl CliCommand {
    /// Returns whether the command prints JSON, for a program to read.
    pub(crate) fn prints_json(&self) -> bool {
        match self {
            CliCommand::Elections(ElectionsCommand::Verify(args)) => args.json,
            CliCommand::Storage(StorageCommand::Verify(args)) => args.json,
            CliCommand::Status(args) => args.json,
            CliCommand::Cluster(command) => command.args().json,
            CliCommand::Bench(args) => args.json,
            CliCommand::Numbers(command) => command.args().json,
            CliCommand::Sequences(command) => command.args().json,
            CliCommand::Repair(command) => command.args().json,
            CliCommand::Doctor(args) => args.json,
            CliCommand::Inspect(command) => command.args().json,
            CliCommand::Storage(StorageCommand::Check(_))
            | CliCommand::Logs(_)
            | CliCommand::Serve(_)
            | CliCommand::Apps(_)
            | CliCommand::Backup(_)
            | CliCommand::Restore(_)
            | CliCommand::Export(_)
            | CliCommand::Import(_)
            | CliCommand::Token(_)
            | CliCommand::Dev(_)
            | CliCommand::Config(_)
            | CliCommand::Completions { .. }
            | CliCommand::Man { .. } => false,
        }
    }
}

/// The help text about the end of a node: signals and exit codes.
const SERVE_EXIT_HELP: &str = "\
    SIGTERM, Ctrl-C or SIGHUP stops the node in order. A second signal ends the process at once. \
    SIGUSR1 has all ports read their files of TLS at once.\n\n\
    Exit codes: 0 the node was asked to stop; 1 the node could not start; 2 wrong usage; 3 wrong configuration, or the \
    storage holds data of another program or version; 4 the storage could not be reached or opened; 5 a port is taken; \
    6 the node did not become the leader in time; 7 the node lost its leadership; 8 a service ended; 9 a part of the node \
    did not stop in time; 10 the process was killed, because work went on after the leadership was lost; 11 the node was \
    asked to step down; 12 a second signal. Start the node again after 4, 6, 7, 8, 9, 10 and 11.";

#[derive(Debug, Default, Args)]
pub(crate) struct ServeArgs {
    /// The configuration file. The default is redb in ./data with the demo application.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// The address of the API.
    #[arg(long, value_name = "IP:PORT", value_parser = address)]
    pub(crate) listen: Option<SocketAddr>,

    /// The address of the admin endpoint.
    #[arg(long, value_name = "IP:PORT", value_parser = address)]
    pub(crate) admin: Option<SocketAddr>,
}

#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    /// The address of the API.
    #[arg(long, value_name = "IP:PORT", value_parser = address)]
    pub(crate) listen: Option<SocketAddr>,

    /// The address of the admin endpoint.
    #[arg(long, value_name = "IP:PORT", value_parser = address)]
    pub(crate) admin: Option<SocketAddr>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check that a configuration can be used.
    Check(ConfigArgs),
    /// Print the configuration in force: defaults, the file and the environment together.
    Show(ConfigArgs),
    /// Print a commented configuration as a starting point.
    Init {
        /// The storage of the configuration.
        #[arg(value_enum, default_value_t = ExampleFile::Redb)]
        storage: ExampleFile,
    },
}

/// The files that `vvm config init` can print: a configuration for each storage, and the tables of
/// the demo.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum ExampleFile {
    /// redb: one file, one process.
    Redb,
    /// Apache Cassandra.
    Cassandra,
    /// Amazon DynamoDB.
    Dynamodb,
    /// One of three nodes on Cassandra that share the work, with all keys of a cluster.
    Cluster,
    /// The tables of the demo, as a starting point for the tables of an application.
    Demo,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// The configuration file. Without the option the defaults apply.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// The configuration file of the node. Without the option the defaults apply.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Print the checks as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// The admin endpoint of the node. The default is the address in VVM__ADMIN__LISTEN, or else
    /// 127.0.0.1:55555.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin: Option<NodeAddress>,

    /// The configuration file of the node, in place of --admin: `admin.listen` is its address.
    #[arg(long, value_name = "FILE", conflicts_with = "admin")]
    pub(crate) config: Option<PathBuf>,

    /// Only check that the process of the node answers, as a health check of a container does. A
    /// node with tokens asks for none.
    #[arg(long, conflicts_with = "json")]
    pub(crate) live: bool,

    /// Print the complete status, as JSON.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

/// Reads the address of an endpoint.
pub(crate) fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "an IP and a port are expected, such as 127.0.0.1:8822")
}
