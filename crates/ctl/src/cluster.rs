//! `vvm cluster`: the nodes and partitions of a cluster, and the orders of an operator. Any node of
//! the cluster answers.

mod text;

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    process::ExitCode,
    str::FromStr,
    time::Duration,
};

use bytes::Bytes;
use clap::{Args, Subcommand};
use serde_json::Value;
use sysvvm::AppName;

use self::text::{name_of, text_of_status};
use crate::{
    CommandError, NodeConfiguration,
    answer_text::{array, shown},
    client::{ConnectionArgs, NodeAddress, NodeClient, NodeRequest, NodeTarget},
    terminal::print,
};

/// The help text about the exit codes of all commands for a cluster.
const EXIT_HELP: &str = "\
    Exit codes: 0 the status is shown, or the order is stored, and the nodes follow it within some seconds; 1 the node \
    refused the request; 2 wrong usage, or NODE is no node of the cluster; 3 the address in VVM__ADMIN__LISTEN is wrong; \
    4 no node answers, or the node cannot reach its storage.";

#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
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
    fn args(&self) -> &ClusterArgs {
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
pub struct NodeArg {
    /// The node: its advertised address, the number of its seat, or its id, as `vvm cluster status`
    /// shows them.
    node: String,
}

/// The arguments that all commands for a cluster have.
#[derive(Debug, Args)]
pub struct ClusterArgs {
    /// The admin endpoint of any node of the cluster. The default is the address in
    /// VVM__ADMIN__LISTEN, or else 127.0.0.1:55555.
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<NodeAddress>,

    /// Print the answer of the node as JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    connection: ConnectionArgs,
}

/// A partition of an application.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionName {
    app: AppName,
    number: u16,
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

/// The most time to wait for an answer. The node itself gives up sooner.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

pub(crate) async fn run(
    command: ClusterCommand,
    node: NodeConfiguration,
) -> Result<ExitCode, CommandError> {
    let ClusterArgs { admin, json, connection } = command.args();
    let (admin, json) = (&node.admin_target(admin.clone(), connection)?, *json);
    let (answer, text) = match command {
        ClusterCommand::Status { partitions, .. } => {
            let status = status(admin).await?;
            let text = text_of_status(&status, partitions);
            (status, text)
        }
        ClusterCommand::Move { partition, node, .. } => {
            let status = status(admin).await?;
            let to = named(&status, &node.node)?;
            let PartitionName { app, number } = &partition;
            let path =
                format!("/cluster/move?app={app}&partition={number}&to={}", shown(&to["id"]));
            let text = format!("ordered: partition {partition} moves to {}\n", name_of(to));
            (order(admin, &path).await?, text)
        }
        ClusterCommand::Pause(_) => {
            let answer = order(admin, "/cluster/pause").await?;
            (answer, "ordered: balancing is paused, until `vvm cluster resume`\n".to_owned())
        }
        ClusterCommand::Resume(_) => {
            let answer = order(admin, "/cluster/resume").await?;
            (answer, "ordered: balancing goes on\n".to_owned())
        }
        ClusterCommand::Drain { node, cancel, .. } => {
            let status = status(admin).await?;
            let member = named(&status, &node.node)?;
            let path = format!("/cluster/drain?member={}&cancel={cancel}", shown(&member["id"]));
            let what = match cancel {
                false => "gives its partitions away, and takes none",
                true => "takes partitions again",
            };
            let mut text = format!("ordered: {} {what}\n", name_of(member));
            if !cancel && is_last(&status, member) {
                text += "no other node is ready: the partitions stop and have no owner until the drain is \
                         cancelled with `--cancel`, or another node is ready\n";
            }
            (order(admin, &path).await?, text)
        }
    };
    print(&if json { format!("{answer:#}\n") } else { text })?;
    Ok(ExitCode::SUCCESS)
}

/// Whether no other node can own partitions now.
fn is_last(status: &Value, member: &Value) -> bool {
    let is_ready = |other: &&Value| {
        other["fresh"] == true && other["leads"] == true && other["state"] == "ready"
    };
    !array(&status["members"]).iter().filter(is_ready).any(|other| other["id"] != member["id"])
}

async fn status(admin: &NodeTarget) -> Result<Value, CommandError> {
    let answer = NodeClient::ask(admin, NodeRequest::get("/cluster"), ANSWER_TIMEOUT).await?;
    answer.object_of_admin(admin, |status| status["members"].is_array())
}

/// Gives an order to the cluster.
async fn order(admin: &NodeTarget, path: &str) -> Result<Value, CommandError> {
    const MAY_BE_GIVEN: &str =
        "; the order may be given: run `vvm cluster status` before you repeat it";
    let request = NodeRequest::post(path, Bytes::new());
    let answer = NodeClient::ask(admin, request, ANSWER_TIMEOUT).await;
    let answer = answer.map_err(|error| error.followed_by(MAY_BE_GIVEN))?;
    answer.object_of_admin(admin, |ordered| ordered["ordered"] == true)
}

/// The member that an operator names by its advertised address, its seat or its id.
///
/// A node that was started again has two rows for some seconds. The row without a heartbeat counts
/// only if there is no other one.
fn named<'a>(status: &'a Value, node: &str) -> Result<&'a Value, CommandError> {
    let address = node.parse::<SocketAddr>().ok().map(canonical);
    let is_named = |member: &&Value| {
        let advertised = member["advertised"].as_str().and_then(|at| at.parse().ok());
        member["id"].as_str().is_some_and(|id| id.eq_ignore_ascii_case(node))
            || member["seat"].as_u64().is_some_and(|seat| node.parse() == Ok(seat))
            || (address.is_some() && address == advertised.map(canonical))
    };
    let members = array(&status["members"]);
    let named: Vec<&Value> = members.iter().filter(is_named).collect();
    let fresh: Vec<&Value> = named.iter().copied().filter(|one| one["fresh"] == true).collect();
    let names = |members: &[&Value]| {
        let names = members.iter().map(|member| {
            let (name, id) = (name_of(member), shown(&member["id"]));
            format!("\n  {name}, id {id}")
        });
        names.collect::<String>()
    };
    match (&fresh[..], &named[..]) {
        ([member], _) | ([], [member]) => Ok(member),
        ([], []) => {
            let all: Vec<&Value> = members.iter().collect();
            Err(CommandError::usage(format!(
                "no node of the cluster has the address, the seat or the id `{node}`: the nodes are{}",
                names(&all)
            )))
        }
        _ => Err(CommandError::usage(format!(
            "`{node}` is not the name of one node only: choose one by its id:{}",
            names(&named)
        ))),
    }
}

fn canonical(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests;
