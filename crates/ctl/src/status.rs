//! `vvm status`: the state of a node, for a person or a program.

use std::{process::ExitCode, time::Duration};

use clap::Args;
use serde_json::Value;

use crate::{
    CommandError, NodeConfiguration,
    answer_text::FAR_BEHIND,
    client::{ConnectionArgs, NodeAddress, NodeClient, NodeRequest},
    terminal::print,
};

#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The admin endpoint of the node. The default is the address in VVM__ADMIN__LISTEN, or else
    /// 127.0.0.1:55555.
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<NodeAddress>,

    /// Only check that the process of the node answers, as a health check of a container does. A
    /// node with tokens asks for none.
    #[arg(long, conflicts_with = "json")]
    live: bool,

    /// Print the complete status, as JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    connection: ConnectionArgs,
}

/// The most time to wait for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) async fn run(
    StatusArgs { admin, live, json, connection }: StatusArgs,
    node: NodeConfiguration,
) -> Result<ExitCode, CommandError> {
    let admin = node.admin_target(admin, &connection)?;
    let path = if live { "/livez" } else { "/status" };
    let answer = NodeClient::ask(&admin, NodeRequest::get(path), ANSWER_TIMEOUT).await?;
    if live && answer.status.is_success() {
        print(&format!("{admin}: alive\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let status = answer.object_of_admin(&admin, |status| status["node"].is_object())?;
    print(&if json { format!("{status:#}\n") } else { status_text(&status) })?;
    Ok(ExitCode::SUCCESS)
}

/// Describes the status in a few lines, for a person.
fn status_text(status: &Value) -> String {
    let node = &status["node"];
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let mut lines = vec![format!(
        "vvm {} at {}: {}, up {} s",
        text(&status["version"]),
        text(&node["advertised"]),
        text(&node["stage"]),
        node["upMs"].as_u64().unwrap_or_default() / 1_000
    )];
    if let Some(problem) = node["problem"].as_str() {
        lines.push(format!("problem: {problem}"));
    }
    let storage = &node["storage"];
    lines.push(match storage["lastError"].as_str() {
        None => format!("storage: {}", text(&storage["driver"])),
        Some(error) => {
            format!("storage: {} does not answer: {error}", text(&storage["driver"]))
        }
    });
    match &node["lead"] {
        Value::Null => lines.push("leads nothing".to_owned()),
        lead => lines.push(format!(
            "leads seat {} in epoch {}, leadership ends in {} ms unless renewed",
            lead["seat"], lead["epoch"], lead["leftMs"]
        )),
    }
    for (seat, owner) in node["leaders"].as_object().into_iter().flatten() {
        lines.push(format!("seat {seat}: {}", text(owner)));
    }
    for app in node["apps"].as_array().into_iter().flatten() {
        let here = app["here"].as_array().map_or(0, Vec::len);
        lines.push(format!(
            "{}: {here} of {} partitions on this node, trust level {}",
            text(&app["app"]),
            app["partitions"],
            text(&app["level"])
        ));
        for partition in app["here"].as_array().into_iter().flatten() {
            let behind = partition["unflushedEvents"].as_u64().unwrap_or_default();
            if partition["status"] != "ready" || partition["waiting"] != 0 || behind > FAR_BEHIND {
                let (number, waiting) = (&partition["number"], &partition["waiting"]);
                let status = text(&partition["status"]);
                lines.push(format!(
                    "  partition {number}: {status}, {waiting} commands waiting, numbers of {behind} events not stored yet"
                ));
            }
            let (number, damaged) = (&partition["number"], partition["damaged"].as_array());
            let damaged = damaged.map_or(&[][..], Vec::as_slice);
            for row in damaged {
                lines.push(format!("  partition {number}: damaged: {}", text(row)));
            }
            let count = partition["damagedRows"].as_u64().unwrap_or_default();
            let more = count.saturating_sub(damaged.len() as u64);
            if more > 0 {
                lines.push(format!("  partition {number}: damaged: {more} more rows"));
            }
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn partitions_with_problems_are_listed() {
        let partition = |number, status, unflushed| json!({"number": number, "status": status, "waiting": 0, "unflushedEvents": unflushed});
        let mut damaged = partition(3, "ready", 0);
        damaged["damaged"] = json!(["event 5 is missing", "record 7 cannot be read"]);
        damaged["damagedRows"] = 3.into();
        let status = json!({"version": "1.2.3", "node": {
            "stage": "leading", "upMs": 7_900, "advertised": "10.0.0.1:8822",
            "lead": {"seat": 1, "epoch": 3, "leftMs": 500}, "leaders": {"1": "10.0.0.1:8822"},
            "storage": {"driver": "redb", "lastError": "no answer"},
            "apps": [{"app": "demo/shop", "partitions": 10, "level": "0",
                      "here": [partition(0, "ready", 9), damaged, partition(1, "violation: a row", 0),
                               partition(2, "ready", 20_000)]}],
            "problem": null,
        }});
        let described = status_text(&status);
        assert!(
            described.starts_with("vvm 1.2.3 at 10.0.0.1:8822: leading, up 7 s\n"),
            "{described}"
        );
        assert!(described.contains("seat 1 in epoch 3"), "{described}");
        assert!(described.contains("partition 1: violation: a row"), "{described}");
        assert!(!described.contains("partition 0"), "{described}");
        for damaged in ["event 5 is missing", "record 7 cannot be read", "1 more rows"] {
            let line = format!("partition 3: damaged: {damaged}");
            assert!(described.contains(&line), "{described}");
        }
        assert!(
            described.contains("partition 2: ready, 0 commands waiting, numbers of 20000 events"),
            "{described}"
        );
        assert!(described.contains("storage: redb does not answer: no answer"), "{described}");
    }
}
