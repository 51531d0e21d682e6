//! The status of a cluster as text, for a person.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::answer_text::{FAR_BEHIND, array, shown, table_of};

/// Describes a cluster: a line about all of it, a table of its nodes, and a table of its
/// partitions. Without `with_all` the second table has only the partitions that need attention.
pub(super) fn text_of_status(status: &Value, with_all: bool) -> String {
    let (members, partitions) = (array(&status["members"]), array(&status["partitions"]));
    let held = members.iter().filter(|member| member["leads"] == true).count();
    let balancing = if status["paused"] == true { "paused" } else { "on" };
    let age = status["ageMs"].as_u64().unwrap_or_default();
    let mut text = format!(
        "cluster {age} ms ago, as the node with * saw it: {}, {held} of {} seats held, balancing is {balancing}\n",
        counted(members.iter().filter(|member| member["fresh"] == true).count(), "node"),
        status["seats"]
    );
    if let Some(error) = status["lastError"].as_str() {
        text += &format!("the last look at the cluster failed: {error}\n");
    }
    let this = &status["thisMember"];
    text += &table_of(
        [
            "node",
            "seat",
            "state",
            "partitions",
            "leadership left",
            "asks for",
            "cluster port",
            "version",
            "id",
        ],
        members.iter().map(|member| row_of_member(member, this)),
    );
    for member in members {
        let refused: Vec<String> = array(&member["refused"]).iter().map(shown).collect();
        if !refused.is_empty() {
            let (node, refused) = (shown(&member["advertised"]), refused.join(", "));
            text += &format!("{node} could not start {refused}: its log has the reason\n");
        }
    }
    let listed: Vec<&Value> =
        partitions.iter().filter(|one| with_all || needs_attention(one)).collect();
    if !listed.is_empty() {
        text += &table_of(
            ["partition", "node", "epoch", "state", "waiting", "lag"],
            listed.iter().map(|partition| row_of_partition(partition)),
        );
    }
    text += &text_of_counts(partitions, listed.len(), with_all);
    text
}

/// The name of a member in sentences: its address, and its seat.
pub(super) fn name_of(member: &Value) -> String {
    let address = shown(&member["advertised"]);
    match &member["seat"] {
        Value::Null => format!("{address} (no seat)"),
        seat => format!("{address} (seat {seat})"),
    }
}

fn row_of_member(member: &Value, this: &Value) -> [String; 9] {
    let address = shown(&member["advertised"]);
    let is_this = !this.is_null() && member["id"] == *this;
    let state = match (member["fresh"] == true, member["leads"] == true) {
        (false, _) => "not responding".to_owned(),
        // A node without a seat is `starting`, or `draining`.
        (true, false) if member["state"] != "draining" => "standby".to_owned(),
        (true, _) => shown(&member["state"]),
    };
    let wants: Vec<String> = array(&member["wants"]).iter().map(shown).collect();
    let left = member["leftMs"].as_u64();
    let left = left.map(|left| format!("{}.{} s", left / 1_000, left % 1_000 / 100));
    [
        if is_this { format!("{address} *") } else { address },
        or_dash(&member["seat"]),
        state,
        or_dash(&member["partitions"]),
        left.unwrap_or_else(|| "-".to_owned()),
        if wants.is_empty() { "-".to_owned() } else { wants.join(", ") },
        or_dash(&member["cluster"]),
        or_dash(&member["version"]),
        shown(&member["id"]),
    ]
}

fn row_of_partition(partition: &Value) -> [String; 6] {
    [
        format!("{}/{}", shown(&partition["app"]), partition["number"]),
        or_dash(&partition["owner"]),
        or_dash(&partition["epoch"]),
        state_of(partition),
        or_dash(&partition["waiting"]),
        or_dash(&partition["lag"]),
    ]
}

/// The state of a partition. Nobody may own it, or its owner may have said nothing for seconds.
fn state_of(partition: &Value) -> String {
    if partition["owner"].is_null() {
        return "no owner".to_owned();
    }
    if partition["member"].is_null() || partition["state"] == "unknown" {
        return "owner not responding".to_owned();
    }
    or_dash(&partition["state"])
}

fn needs_attention(partition: &Value) -> bool {
    let number = |key: &str| partition[key].as_u64().unwrap_or_default();
    state_of(partition) != "ready" || number("waiting") > 0 || number("lag") > FAR_BEHIND
}

/// The number of partitions of each application, and what the table of partitions leaves out.
fn text_of_counts(partitions: &[Value], listed: usize, with_all: bool) -> String {
    let mut apps: BTreeMap<String, usize> = BTreeMap::new();
    for partition in partitions {
        *apps.entry(shown(&partition["app"])).or_default() += 1;
    }
    let apps: Vec<String> = apps.iter().map(|(app, count)| format!("{count} of {app}")).collect();
    if apps.is_empty() {
        return "no partition has an owner yet\n".to_owned();
    }
    let state = match (with_all, listed, partitions.len() - listed) {
        (true, ..) => String::new(),
        (false, 0, _) => "; all are ready".to_owned(),
        (false, _, 0) => "; all need attention".to_owned(),
        (false, _, 1) => "; the other one needs no attention".to_owned(),
        (false, _, others) => format!("; the other {others} need no attention"),
    };
    format!("{}: {}{state}\n", counted(partitions.len(), "partition"), apps.join(", "))
}

/// A number with the name of what is counted.
fn counted(count: usize, of: &str) -> String {
    if count == 1 { format!("1 {of}") } else { format!("{count} {of}s") }
}

fn or_dash(value: &Value) -> String {
    if value.is_null() { "-".to_owned() } else { shown(value) }
}
