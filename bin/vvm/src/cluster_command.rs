//! `vvm cluster`: the nodes and partitions of a cluster, and the orders of an operator. Any node of
//! the cluster answers.

mod text;

use std::{
    net::{IpAddr, SocketAddr},
    process::ExitCode,
    time::Duration,
};

use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde_json::Value;

use self::text::{name_of, text_of_status};
use crate::{
    answer_text::{array, shown},
    cli::{ClusterArgs, ClusterCommand, PartitionName},
    command_error::CommandError,
    node_client::{NodeClient, NodeTarget, no_answer},
    print, serve,
};

/// The most time to wait for an answer. The node itself gives up sooner.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

pub(crate) async fn run(command: ClusterCommand) -> Result<ExitCode, CommandError> {
    let ClusterArgs { admin, json, connection } = command.args();
    let (admin, json) = (&serve::admin_target(admin.clone(), connection)?, *json);
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
    let request = (Method::GET, "/cluster", Bytes::new());
    let answer = NodeClient::ask(admin, request, ANSWER_TIMEOUT).await;
    let unreachable = |why| CommandError::unreachable(no_answer(admin, "admin.listen", why));
    let answer = answer.map_err(unreachable)?;
    // The API has no such path.
    if answer.status == StatusCode::NOT_FOUND {
        return Err(answer.not_admin(admin));
    }
    let status = answer.object(admin)?;
    if !status["members"].is_array() {
        return Err(answer.not_admin(admin));
    }
    Ok(status)
}

/// Gives an order to the cluster. An admin endpoint also answers 404 if it does not know what the
/// order names.
async fn order(admin: &NodeTarget, path: &str) -> Result<Value, CommandError> {
    const MAY_BE_GIVEN: &str =
        "; the order may be given: run `vvm cluster status` before you repeat it";
    let request = (Method::POST, path, Bytes::new());
    let answer = NodeClient::ask(admin, request, ANSWER_TIMEOUT).await;
    let unreachable =
        |why| CommandError::unreachable(no_answer(admin, "admin.listen", why) + MAY_BE_GIVEN);
    let answer = answer.map_err(unreachable)?;
    if answer.status == StatusCode::NOT_FOUND && !answer.is_of_admin(admin) {
        return Err(answer.not_admin(admin));
    }
    let ordered = answer.object(admin)?;
    if ordered["ordered"] != true {
        return Err(answer.not_admin(admin));
    }
    Ok(ordered)
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
