//! The command line.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand};
use ctl::CtlCommand;

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
    #[command(flatten)]
    Ctl(Box<CtlCommand>),
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

/// Reads the address of an endpoint.
pub(crate) fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "an IP and a port are expected, such as 127.0.0.1:8822")
}

#[cfg(test)]
mod tests;
