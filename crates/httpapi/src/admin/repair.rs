//! Repair by an operator: the list of partitions that are not at work, and the marking of an event.

use eventlog::{DrawnNumber, Offset, WsId};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};
use vvm::{App, MarkRequest, Node, RepairError, eventlog, sysvvm::AppName};

use super::needed;
use crate::{
    problem::ProblemDetails,
    query::{check_query, parameter},
    response::{Body, json_response},
};

/// Lists the partitions of this node that run no commands, and the last repairs.
pub(super) async fn list(
    node: &Node,
    query: Option<&str>,
) -> Result<Response<Body>, ProblemDetails> {
    check_query(&[], query)?;
    let (mut stuck, mut repairs, mut partitions) = (Vec::new(), Vec::new(), 0);
    let mut unread = None;
    for app in node.apps() {
        partitions += app.partitions_here();
        stuck.extend(app.stuck_partitions().await);
        match app.repairs().await {
            Ok(noted) => repairs.extend(noted.iter().map(|note| of_app(app, json!(note)))),
            // The partitions are shown all the same.
            Err(error) => unread = Some(error.to_string()),
        }
    }
    let list = json!({
        "stage": node.stage(), "partitions": partitions, "stuck": stuck, "repairs": repairs,
        "repairsError": unread,
    });
    Ok(json_response(StatusCode::OK, &list))
}

/// Marks an event, or says what would be written if `dryRun` is true.
pub(super) async fn mark(
    node: &Node,
    query: Option<&str>,
) -> Result<Response<Body>, ProblemDetails> {
    const KNOWN: &[&str] =
        &["app", "partition", "event", "ws", "offset", "numbers", "ignoreHint", "dryRun"];
    check_query(KNOWN, query)?;
    let app = needed::<AppName>(query, "app")?;
    let request = MarkRequest {
        partition: needed(query, "partition")?,
        event: Offset(needed(query, "event")?),
        ws: WsId(needed(query, "ws")?),
        offset: Offset(needed(query, "offset")?),
        numbers: parameter::<String>(query, "numbers")?.map(|text| numbers(&text)).transpose()?,
        ignores_hint: parameter(query, "ignoreHint")?.unwrap_or(false),
        is_dry_run: parameter(query, "dryRun")?.unwrap_or(false),
    };
    let found = node.app(app.owner(), app.name());
    let app = found
        .ok_or_else(|| ProblemDetails::not_found(format!("the node has no application {app}")))?;
    let note = app.mark_event(request).await.map_err(|error| problem(&error))?;
    Ok(json_response(StatusCode::OK, &of_app(app, json!(note))))
}

fn of_app(app: &App, mut note: Value) -> Value {
    note["app"] = json!(app.name().to_string());
    note
}

/// Reads numbers such as `1:30,2:99`: the last number of each sequence.
fn numbers(text: &str) -> Result<Vec<DrawnNumber>, ProblemDetails> {
    let number = |part: &str| {
        let (seq, last) = part.split_once(':')?;
        Some(DrawnNumber { seq: seq.parse().ok()?, last: last.parse().ok()? })
    };
    let wrong = |part: &str| {
        ProblemDetails::bad_request(format!(
            "`{part}` of the parameter `numbers` is not a sequence and its last number, such as \
             3:322685000131080"
        ))
    };
    let parts = text.split(',').filter(|part| !part.is_empty());
    parts.map(|part| number(part).ok_or_else(|| wrong(part))).collect()
}

fn problem(error: &RepairError) -> ProblemDetails {
    let reason = causes::with_causes(error);
    match error {
        RepairError::NotLeader(_) => ProblemDetails::unavailable("not_leader", reason),
        RepairError::Refused(_) => ProblemDetails::new(StatusCode::CONFLICT, "not_marked", reason),
        RepairError::Failed(_) | RepairError::Table(_) | RepairError::NoResult(_) => {
            ProblemDetails::unavailable("storage", reason)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_pairs_of_a_sequence_and_its_last_number() {
        let read = numbers("1:30,3:99").unwrap();
        let drawn = |seq, last| DrawnNumber { seq, last };
        assert_eq!(read, [drawn(1, 30), drawn(3, 99)]);
        assert_eq!(numbers("").unwrap(), []);
        for wrong in ["1", "1:", ":1", "a:1", "1:2;3:4", "70000:1", "1:-1"] {
            assert!(numbers(wrong).is_err(), "{wrong}");
        }
    }
}
