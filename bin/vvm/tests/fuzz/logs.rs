//! The logs and the documents after a run must be what the answers have promised.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;
use shop::http_client::{try_request, workspace_path};

use crate::{
    answers::{Offsets, Promises},
    generator::Generator,
    known::WORKSPACES,
    node::NodeProcess,
};

/// The number of records of a workspace that are compared.
const RECORDS: usize = 100;

/// What the logs had.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LogTotals {
    pub(crate) events: u64,
    pub(crate) of_requests: u64,
    pub(crate) records: u64,
}

/// Reads all logs of workspaces, and compares them with the promises and with the documents.
pub(crate) fn check(
    node: &NodeProcess,
    generator: &Generator,
    promises: &Promises,
    token: &str,
) -> Result<LogTotals, String> {
    let mut totals = LogTotals::default();
    let mut missing = promises.done.clone();
    let mut workspaces: HashSet<u64> = promises.workspaces.keys().copied().collect();
    workspaces.extend(WORKSPACES);
    for ws in workspaces {
        let records =
            check_log(node, generator, (promises, &mut missing), (ws, token), &mut totals)?;
        check_records(node, ws, token, &records)?;
        totals.records += records.len().min(RECORDS) as u64;
    }
    match missing.iter().find(|(_, offsets)| !offsets.is_empty()) {
        None => Ok(totals),
        Some((number, offsets)) => {
            Err(format!("request {number} was done at {offsets:?}, and is in no log"))
        }
    }
}

pub(crate) fn get(node: &NodeProcess, path: &str, token: &str) -> Result<String, String> {
    let headers = [("authorization", token)];
    let answer = try_request(node.api, "GET", path, &headers, "");
    match answer.map_err(|error| format!("{path}: {error}"))? {
        (200, body) => Ok(body),
        (status, body) => Err(format!("{path}: {status} {body}")),
    }
}

/// The records of a workspace, as its log leaves them.
type Records = BTreeMap<u64, Value>;

fn check_log(
    node: &NodeProcess,
    generator: &Generator,
    (promises, missing): (&Promises, &mut HashMap<u64, Vec<Offsets>>),
    (ws, token): (u64, &str),
    totals: &mut LogTotals,
) -> Result<Records, String> {
    let mut records = Records::new();
    let log = get(node, &format!("{}/wlog?limit=1000000", workspace_path(ws)), token)?;
    for (line, expected) in log.lines().zip(1..) {
        let event: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let wlog = event["wlogOffset"].as_u64().unwrap_or_default();
        if wlog != expected {
            return Err(format!("workspace {ws} has the event {wlog} in the place of {expected}"));
        }
        totals.events += 1;
        let id = event["requestId"].as_str().unwrap_or_default();
        if let Some(number) = number_of(generator, id) {
            totals.of_requests += 1;
            if promises.refused.contains(&number) {
                return Err(format!("request {number} was refused, and is in the log: {line}"));
            }
            let offsets = (event["plogOffset"].as_u64().unwrap_or_default(), wlog);
            if promises.done.get(&number).is_some_and(|promised| !promised.contains(&offsets)) {
                return Err(format!("request {number} has other offsets: {line}"));
            }
            if let Some(missing) = missing.get_mut(&number) {
                let Some(at) = missing.iter().position(|one| *one == offsets) else {
                    return Err(format!("request {number} is in the logs twice: {line}"));
                };
                missing.remove(at);
            }
        }
        for row in event["rows"].as_array().into_iter().flatten() {
            let mut row = row.clone();
            row["version"]["epoch"] = event["epoch"].clone();
            row["version"]["offset"] = event["plogOffset"].clone();
            records.insert(row["id"].as_u64().unwrap_or_default(), row);
        }
    }
    Ok(records)
}

/// The number of a request, if its id was not changed on the way.
fn number_of(generator: &Generator, id: &str) -> Option<u64> {
    let number = id.strip_prefix('f')?.split_once('-')?.0.parse().ok()?;
    (generator.id(number) == id).then_some(number)
}

/// The node shows records as its log leaves them.
fn check_records(
    node: &NodeProcess,
    ws: u64,
    token: &str,
    records: &Records,
) -> Result<(), String> {
    // Old and new ones: those between them are alike.
    let step = records.len().div_ceil(RECORDS).max(1);
    for (id, expected) in records.iter().step_by(step) {
        let table = expected["table"].as_str().unwrap_or_default();
        if table.starts_with("sys.") {
            continue;
        }
        let read = get(node, &format!("{}/docs/{table}/{id}", workspace_path(ws)), token)?;
        let read: Value = serde_json::from_str(&read).map_err(|error| error.to_string())?;
        if read != *expected {
            return Err(format!("a record is {read}, and the log leaves it as {expected}"));
        }
    }
    Ok(())
}
