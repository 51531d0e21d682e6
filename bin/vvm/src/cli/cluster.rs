//! The arguments of the commands for a cluster.

use std::{fmt, str::FromStr};

use clap::{Args, Subcommand};
use sysvvm::AppName;

use super::{ConnectionArgs, NodeAddress};

/// The help text about the exit codes of all commands for a cluster.
const EXIT_HELP: &str = "\
    Exit codes: 0 the status is shown, or the order is stored, and the nodes follow it within some seconds; 1 the node \
    refused the request; 2 wrong usage, or NODE is no node of the cluster; 3 the address in VVM__ADMIN__LISTEN is wrong; \
    4 no node answers, or the node cannot reach its storage.";

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Show the nodes of the cluster, and the partitions that need attention.
    #[command(after_long_help = EXIT_HELP)]
    Status {
        /// Show all partitions.
        #[arg(long)]
        partitions: bool,
        #[command(flatten)]
        args: ClusterArgs,
    },
    /// Move a partition to another node. Balancing may move the partition again: pause balancing
    /// first if the partition must stay there.
    #[command(after_long_help = EXIT_HELP)]
    Move {
        /// The partition, as `vvm cluster status --partitions` shows it, such as acme/shop/3.
        #[arg(value_name = "APP/PARTITION")]
        partition: PartitionName,
        #[command(flatten)]
        node: NodeArg,
        #[command(flatten)]
        args: ClusterArgs,
    },
    /// Pause balancing: partitions no longer move to even out the loads of the nodes. Nodes still
    /// take free partitions, and still obey `move` and `drain`.
    #[command(after_long_help = EXIT_HELP)]
    Pause(ClusterArgs),
    /// End the pause of balancing.
    #[command(after_long_help = EXIT_HELP)]
    Resume(ClusterArgs),
    /// Drain a node: it gives its partitions to the other nodes, and takes none. The node goes on,
    /// and forwards requests. If no other node can own a partition, the partition has no owner
    /// until the drain ends.
    #[command(after_long_help = EXIT_HELP)]
    Drain {
        #[command(flatten)]
        node: NodeArg,
        /// End the drain: the node takes partitions again. The start of a process ends it, too.
        #[arg(long)]
        cancel: bool,
        #[command(flatten)]
        args: ClusterArgs,
    },
}

impl ClusterCommand {
    pub(crate) fn args(&self) -> &ClusterArgs {
        match self {
            ClusterCommand::Pause(args)
            | ClusterCommand::Resume(args)
            | ClusterCommand::Status { args, .. }
            | ClusterCommand::Move { args, .. }
            | ClusterCommand::Drain { args, .. } => args,
        }
    }
}

/// A node of the cluster.
#[derive(Debug, Args)]
pub(crate) struct NodeArg {
    /// The node: its advertised address, the number of its seat, or its id, as `vvm cluster status`
    /// shows them.
    pub(crate) node: String,
}

/// The arguments that all commands for a cluster have.
#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    /// The admin endpoint of any node of the cluster. The default is the address in
    /// VVM__ADMIN__LISTEN, or else 127.0.0.1:55555.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin: Option<NodeAddress>,

    /// Print the answer of the node as JSON.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

/// A partition of an application.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PartitionName {
    pub(crate) app: AppName,
    pub(crate) number: u16,
}

impl FromStr for PartitionName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<PartitionName, &'static str> {
        let parts = text.rsplit_once('/').and_then(|(app, number)| {
            Some(PartitionName { app: app.parse().ok()?, number: number.parse().ok()? })
        });
        parts
            .ok_or("an application and the number of a partition are expected, such as acme/shop/3")
    }
}

impl fmt::Display for PartitionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.app, self.number)
    }
}
