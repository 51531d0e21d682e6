//! The arguments of `vvm inspect`.

use clap::{Args, Subcommand};

use super::{ConnectionArgs, NodeAddress, StorageArgs};

/// The help text of `vvm inspect`.
pub(crate) const INSPECT_HELP: &str = "\
    Without --storage and --config a command asks a running node. With one of them it reads the storage itself: Cassandra \
    and DynamoDB also while nodes work, a redb file only while no node uses it. Nothing is ever written. A damaged row is a \
    line with the reason.\n\n\
    Exit codes: 0 the view is whole; 1 the view ended early, or its application, partition or keyspace does not exist; 2 wrong usage; 3 wrong configuration, or \
    the storage holds data of another program or version; 4 the node or the storage could not be reached.";

#[derive(Debug, Subcommand)]
pub(crate) enum InspectCommand {
    /// List the applications, with their numbers, keyspaces, trust levels and tables.
    Apps(InspectArgs),
    /// List the owner and the epoch of each partition.
    Partitions(InspectArgs),
    /// List the leases of the seats, the members of the cluster, and the pause of balancing.
    Leases(InspectArgs),
    /// Show the log of a partition.
    Plog {
        /// The partition.
        #[arg(long, value_name = "NUMBER")]
        partition: u16,

        #[command(flatten)]
        rows: AppRowsArgs,
    },
    /// Show the log of a workspace.
    Wlog {
        /// The workspace.
        #[arg(long, value_name = "NUMBER")]
        ws: u64,

        #[command(flatten)]
        rows: AppRowsArgs,
    },
    /// Show the records of a workspace.
    Records {
        /// The workspace.
        #[arg(long, value_name = "NUMBER")]
        ws: u64,

        #[command(flatten)]
        rows: AppRowsArgs,
    },
    /// Show the stored numbers: offsets of partitions and series of document numbers, or the
    /// sequences of a workspace.
    Numbers {
        /// The application.
        #[arg(long, value_name = "OWNER/NAME", default_value = "demo/shop")]
        app: String,

        /// The workspace.
        #[arg(long, value_name = "NUMBER")]
        ws: Option<u64>,

        #[command(flatten)]
        args: InspectArgs,
    },
    /// Show the rows of storage partitions, as they are stored.
    Rows {
        /// The keyspace, as `vvm inspect apps` lists it. The system keyspace is `sysvvm`, unless
        /// the configuration has another name.
        #[arg(long, value_name = "NAME")]
        keyspace: String,

        /// The key of one partition, in hexadecimal. Without it all partitions are shown.
        #[arg(long, value_name = "HEX", conflicts_with = "prefix")]
        key: Option<String>,

        /// The first bytes of the keys of the partitions, in hexadecimal.
        #[arg(long, value_name = "HEX")]
        prefix: Option<String>,

        /// The first clustering columns in the partition, in hexadecimal.
        #[arg(long, value_name = "HEX", requires = "key")]
        from: Option<String>,

        /// The most rows.
        #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = limit)]
        limit: usize,

        #[command(flatten)]
        args: InspectArgs,
    },
}

/// A part of the rows of an application.
#[derive(Debug, Args)]
pub(crate) struct AppRowsArgs {
    /// The application.
    #[arg(long, value_name = "OWNER/NAME", default_value = "demo/shop")]
    pub(crate) app: String,

    /// The first offset, from 1 on, or the first id.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) from: Option<u64>,

    /// The most lines.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = limit)]
    pub(crate) limit: usize,

    #[command(flatten)]
    pub(crate) args: InspectArgs,
}

/// The arguments that all views have.
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// The admin endpoint of a node. The default is the address in VVM__ADMIN__LISTEN, or else
    /// 127.0.0.1:55555.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["storage", "config"])]
    pub(crate) admin: Option<NodeAddress>,

    #[command(flatten)]
    pub(crate) storage: StorageArgs,

    /// Print each line as JSON.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

impl InspectCommand {
    pub(crate) fn args(&self) -> &InspectArgs {
        match self {
            InspectCommand::Apps(args)
            | InspectCommand::Partitions(args)
            | InspectCommand::Leases(args)
            | InspectCommand::Numbers { args, .. }
            | InspectCommand::Rows { args, .. } => args,
            InspectCommand::Plog { rows, .. }
            | InspectCommand::Wlog { rows, .. }
            | InspectCommand::Records { rows, .. } => &rows.args,
        }
    }

    /// The name of the view, and its query.
    pub(crate) fn view(&self) -> (&'static str, String) {
        let with =
            |owner: &str, number: u64, AppRowsArgs { app, from, limit, .. }: &AppRowsArgs| {
                let from = from.map(|from| format!("&from={from}")).unwrap_or_default();
                format!("app={app}&{owner}={number}&limit={limit}{from}")
            };
        match self {
            InspectCommand::Apps(_) => ("apps", String::new()),
            InspectCommand::Partitions(_) => ("partitions", String::new()),
            InspectCommand::Leases(_) => ("leases", String::new()),
            InspectCommand::Plog { partition, rows } => {
                ("plog", with("partition", (*partition).into(), rows))
            }
            InspectCommand::Wlog { ws, rows } => ("wlog", with("ws", *ws, rows)),
            InspectCommand::Records { ws, rows } => ("records", with("ws", *ws, rows)),
            InspectCommand::Numbers { app, ws, .. } => {
                let ws = ws.map(|ws| format!("&ws={ws}")).unwrap_or_default();
                ("numbers", format!("app={app}{ws}"))
            }
            InspectCommand::Rows { keyspace, key, prefix, from, limit, .. } => {
                let parts = [("key", key), ("prefix", prefix), ("from", from)];
                let parts = parts.iter().filter_map(|(name, bytes)| {
                    bytes.as_ref().map(|bytes| format!("&{name}={bytes}"))
                });
                let parts: String = parts.collect();
                ("rows", format!("keyspace={keyspace}&limit={limit}{parts}"))
            }
        }
    }
}

fn limit(text: &str) -> Result<usize, &'static str> {
    let limit = text.parse().ok().filter(|limit| *limit > 0);
    limit.ok_or("a number of lines of 1 or more is expected")
}
