//! `vvm inspect`: the rows of a storage, read by a node or by the command itself. Both give the
//! same lines.

use std::{ops::ControlFlow, pin::pin, process::ExitCode, sync::Arc};

use clap::{Args, Subcommand};
use clock::Clock;
use futures::{
    TryStreamExt,
    future::{Either, select},
};
use http_admin::inspect::{InspectError, Inspector, View};
use serde_json::Value;
use sysvvm::AppName;

use crate::{
    CommandError, NodeConfiguration,
    client::{
        ConnectionArgs, NodeAddress, NodeRequest, NodeTarget, PieceReceiver, StreamedAnswer,
        query_part, read_ahead,
    },
    named_storage::{NamedStorage, OPEN_TIME},
    storage_args::StorageArgs,
    storage_target::StorageTarget,
    terminal::{StdoutPrinter, print_piece, say},
};

/// The help text of `vvm inspect`.
const INSPECT_HELP: &str = "\
    Without --storage and --config a command asks a running node. With one of them it reads the storage itself: Cassandra \
    and DynamoDB even while nodes work, a redb file only while no node uses it. Nothing is ever written. A damaged row is a \
    line with the reason.\n\n\
    Exit codes: 0 the view is whole; 1 the view ended early, or its application, partition or keyspace does not exist; 2 wrong usage; 3 wrong configuration, or \
    the storage holds data of another program or version; 4 the node or the storage could not be reached.";

#[derive(Debug, Subcommand)]
#[command(after_long_help = INSPECT_HELP)]
pub enum InspectCommand {
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
        app: AppName,

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
pub struct AppRowsArgs {
    /// The application.
    #[arg(long, value_name = "OWNER/NAME", default_value = "demo/shop")]
    app: AppName,

    /// The first offset, from 1 on, or the first id.
    #[arg(long, value_name = "NUMBER")]
    from: Option<u64>,

    /// The most lines.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = limit)]
    limit: usize,

    #[command(flatten)]
    args: InspectArgs,
}

/// The arguments that all views have.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// The admin endpoint of a node. The default is the address in VVM__ADMIN__LISTEN, or else
    /// 127.0.0.1:55555.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["storage", "config"])]
    admin: Option<NodeAddress>,

    #[command(flatten)]
    storage: StorageArgs,

    /// Print each line as JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    connection: ConnectionArgs,
}

impl InspectCommand {
    fn args(&self) -> &InspectArgs {
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

    /// Whether the lines are JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.args().json
    }

    /// The name of the view, and its query.
    fn view(&self) -> (&'static str, String) {
        let query = |of: &str, number: u64, AppRowsArgs { app, from, limit, .. }: &AppRowsArgs| {
            format!("app={app}&{of}={number}&limit={limit}") + &query_part("from", *from)
        };
        match self {
            InspectCommand::Apps(_) => ("apps", String::new()),
            InspectCommand::Partitions(_) => ("partitions", String::new()),
            InspectCommand::Leases(_) => ("leases", String::new()),
            InspectCommand::Plog { partition, rows } => {
                ("plog", query("partition", (*partition).into(), rows))
            }
            InspectCommand::Wlog { ws, rows } => ("wlog", query("ws", *ws, rows)),
            InspectCommand::Records { ws, rows } => ("records", query("ws", *ws, rows)),
            InspectCommand::Numbers { app, ws, .. } => {
                ("numbers", format!("app={app}{}", query_part("ws", *ws)))
            }
            InspectCommand::Rows { keyspace, key, prefix, from, limit, .. } => {
                let parts = [("key", key), ("prefix", prefix), ("from", from)];
                let parts = parts.map(|(name, bytes)| query_part(name, bytes.as_ref())).concat();
                ("rows", format!("keyspace={keyspace}&limit={limit}{parts}"))
            }
        }
    }
}

fn limit(text: &str) -> Result<usize, &'static str> {
    let limit = text.parse().ok().filter(|limit| *limit > 0);
    limit.ok_or("a number of lines of 1 or more is expected")
}

/// The bytes that the command reads ahead of its reader. A pager takes a page, and nothing while
/// its user reads. The node would end such an answer, and sends only a few views at the same time.
const AHEAD: u32 = 32 << 20;

/// What to do if the reader of the command is too slow for a large view.
const SLOW: &str = "write the output to a file, and read the file";

pub(crate) async fn run(
    command: InspectCommand,
    node: NodeConfiguration,
) -> Result<ExitCode, CommandError> {
    let args = command.args();
    let (name, query) = command.view();
    // The command line is checked before any node or storage is asked. The view names its own
    // parameter.
    if let InspectCommand::Plog { rows, .. } | InspectCommand::Wlog { rows, .. } = &command
        && rows.from == Some(0)
    {
        return Err(CommandError::usage("--from 0: the first event of a log has the offset 1"));
    }
    let view = View::parse(name, Some(&query));
    let view = view.map_err(|error| CommandError::usage(error.to_string()))?;
    let count = if args.storage.is_given() {
        offline(args, node, view).await?
    } else {
        online(args, node, &format!("/inspect/{name}?{query}")).await?
    };
    if count == 0 {
        // A workspace that does not exist has no rows, as a new one.
        say("the view has no rows");
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows the lines that a node sends, and returns their number.
async fn online(
    args: &InspectArgs,
    node: NodeConfiguration,
    path: &str,
) -> Result<usize, CommandError> {
    let node = node.admin_target(args.admin.clone(), &args.connection)?;
    let mut answer = StreamedAnswer::open(&node, NodeRequest::get(path), SLOW).await?;
    let (ahead, pieces) = read_ahead(AHEAD);
    let read = pin!(async move {
        while let Some(piece) = answer.next().await? {
            if !ahead.send(piece).await {
                break;
            }
        }
        Ok(())
    });
    match select(read, pin!(show_pieces(args, &node, pieces))).await {
        Either::Left((read, shown)) => {
            let count = shown.await?;
            read.map(|()| count)
        }
        Either::Right((count, _)) => count,
    }
}

/// Shows the lines in the pieces of an answer, and returns their number.
async fn show_pieces(
    args: &InspectArgs,
    node: &NodeTarget,
    mut pieces: PieceReceiver,
) -> Result<usize, CommandError> {
    let mut printer = StdoutPrinter::default();
    // The beginning of a line.
    let mut rest = Vec::new();
    let mut count = 0;
    while let Some(piece) = pieces.next().await {
        let mut text = String::new();
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            rest.extend_from_slice(part);
            if rest.ends_with(b"\n") {
                let line = serde_json::from_slice(&rest).map_err(|error| {
                    CommandError::unfinished(format!(
                        "{node} sent a line that is not JSON: {error}"
                    ))
                })?;
                text += &text_of(args, &line);
                count += 1;
                rest.clear();
            }
        }
        if printer.print(&text).await?.is_break() {
            break;
        }
    }
    Ok(count)
}

/// Shows the lines that the command reads itself, and returns their number.
async fn offline(
    args: &InspectArgs,
    node: NodeConfiguration,
    view: View,
) -> Result<usize, CommandError> {
    let advice = "ask the node: `vvm inspect` with --admin";
    let storage = args.storage.outside_memory(node, advice)?;
    let clock = Clock::system();
    let deadline = clock.now() + OPEN_TIME;
    let driver = storage.target.open_for_reading(clock.clone(), deadline).await;
    let advice = "ask the node: leave out --storage and --config, and give --admin";
    let driver = driver.map_err(|error| storage.not_opened(&error, advice))?;
    let NamedStorage { target, system } = storage;
    let failed = |error: InspectError| failed(&target, &error);
    let shown = async {
        let inspector = Inspector::open(Arc::clone(&driver), system, clock, deadline).await;
        let inspector = inspector.map_err(failed)?;
        let mut lines = inspector.lines(view).await.map_err(failed)?;
        let mut count = 0;
        while let Some(line) = lines.try_next().await.map_err(failed)? {
            count += 1;
            if show(args, &line)?.is_break() {
                break;
            }
        }
        Ok(count)
    };
    let shown = shown.await;
    driver.close().await;
    shown
}

/// Prints a line. `Break` means that nobody reads the lines that follow.
fn show(args: &InspectArgs, line: &Value) -> Result<ControlFlow<()>, CommandError> {
    print_piece(&text_of(args, line))
}

/// A line as JSON, or for people: the name and the value of each field.
fn text_of(args: &InspectArgs, line: &Value) -> String {
    if args.json {
        return format!("{line}\n");
    }
    let field = |(name, value): (&String, &Value)| match value {
        Value::String(text) => format!("{name}={text}"),
        value => format!("{name}={value}"),
    };
    let fields = line.as_object().map(|fields| fields.iter().map(field).collect::<Vec<_>>());
    fields.unwrap_or_default().join("  ") + "\n"
}

fn failed(target: &StorageTarget, error: &InspectError) -> CommandError {
    let what = format!("cannot read {target}");
    match error {
        InspectError::System(error @ sysvvm::Error::DoesNotExist { .. }) => {
            CommandError::unfinished(format!("{error}{}", CommandError::choose_app(error)))
        }
        error @ InspectError::NoPartition { .. } => CommandError::unfinished(error.to_string()),
        InspectError::System(error) => CommandError::system(&what, error),
        InspectError::Storage(error) => CommandError::storage(&what, error),
        error => CommandError::unfinished(format!("{what}: {}", base::with_causes(error))),
    }
}
