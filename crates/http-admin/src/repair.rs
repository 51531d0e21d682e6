//! Repair by an operator: the list of partitions that are not at work, and the marking of an event.

use eventlog::{DrawnNumber, Offset, WsId};
use http_server::{
    problem::{Answer, NOT_OWNER, ProblemDetails},
    query::{check_query, parameter, required},
    response::json_response,
};
use hyper::StatusCode;
use serde_json::{Value, json};
use vvm::{
    App, MarkError, MarkRequest, Node, NumberRepairError, NumberRequest, RemoveRequest,
    RepairError, eventlog,
    sysvvm::{AppName, NumberPlace},
};

use crate::found_app::found_app;

/// Lists the partitions of this node that run no commands, and the last repairs.
pub(crate) async fn list(node: &Node, query: Option<&str>) -> Answer {
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

/// Marks an event or writes a fencing entry again, or says what would be written if `dryRun` is
/// true.
pub(crate) async fn mark(node: &Node, query: Option<&str>) -> Answer {
    const KNOWN: &[&str] = &[
        "app",
        "partition",
        "event",
        "ws",
        "offset",
        "numbers",
        "ignoreHint",
        "fencing",
        "action",
        "dryRun",
    ];
    check_query(KNOWN, query)?;
    let app = required::<AppName>(query, "app")?;
    let place = match parameter(query, "fencing")?.unwrap_or(false) {
        true if has_any(query, &["ws", "offset", "numbers"])? => {
            let why = "with `fencing=true` there is no `ws`, no `offset` and no `numbers`";
            return Err(ProblemDetails::bad_request(why));
        }
        true => None,
        false => Some((WsId(required(query, "ws")?), Offset(required(query, "offset")?))),
    };
    let request = MarkRequest {
        partition: required(query, "partition")?,
        event: Offset(required(query, "event")?),
        place,
        numbers: parameter::<String>(query, "numbers")?.map(|text| numbers(&text)).transpose()?,
        ignores_hint: parameter(query, "ignoreHint")?.unwrap_or(false),
        action: parameter(query, "action")?,
        is_dry_run: parameter(query, "dryRun")?.unwrap_or(false),
    };
    let app = found_app(node, &app)?;
    let note = app.mark_event(request).await.map_err(|error| problem(&error))?;
    Ok(json_response(StatusCode::OK, &of_app(app, json!(note))))
}

/// Whether the query has one of these parameters.
fn has_any(query: Option<&str>, names: &[&str]) -> Result<bool, ProblemDetails> {
    for name in names {
        if parameter::<String>(query, name)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes the row in the way of a partition, or says what would be removed if `dryRun` is true.
pub(crate) async fn remove(node: &Node, query: Option<&str>) -> Answer {
    check_query(&["app", "partition", "digest", "foreign", "dryRun"], query)?;
    let app = required::<AppName>(query, "app")?;
    let request = RemoveRequest {
        partition: required(query, "partition")?,
        digest: parameter(query, "digest")?,
        is_foreign: parameter(query, "foreign")?.unwrap_or(false),
        is_dry_run: parameter(query, "dryRun")?.unwrap_or(false),
    };
    if request.digest.is_none() && !request.is_dry_run {
        let why = "the parameter `digest` is missing: a request with `dryRun=true` returns it";
        return Err(ProblemDetails::bad_request(why));
    }
    let app = found_app(node, &app)?;
    let note = app.remove_row(request).await.map_err(|error| problem(&error))?;
    Ok(json_response(StatusCode::OK, &of_app(app, json!(note))))
}

/// Stores a number in a row that holds none, or says what would be stored if `dryRun` is true.
pub(crate) async fn number(node: &Node, query: Option<&str>) -> Answer {
    const KNOWN: &[&str] = &["app", "partition", "ws", "sequence", "number", "digest", "dryRun"];
    check_query(KNOWN, query)?;
    let app = required::<AppName>(query, "app")?;
    let place = match (parameter(query, "ws")?, parameter(query, "sequence")?) {
        (None, None) => NumberPlace::Offset,
        (Some(ws), Some(seq)) => NumberPlace::Last { ws, seq },
        _ => {
            let why = "`ws` and `sequence` belong together: without both, the row is the stored \
                       offset of the partition";
            return Err(ProblemDetails::bad_request(why));
        }
    };
    let request = NumberRequest {
        partition: required(query, "partition")?,
        place,
        number: parameter(query, "number")?,
        digest: parameter(query, "digest")?,
        is_dry_run: parameter(query, "dryRun")?.unwrap_or(false),
    };
    if (request.digest.is_none() || request.number.is_none()) && !request.is_dry_run {
        let why = "the parameters `number` and `digest` are needed: a request with `dryRun=true` \
                   returns a safe number and the digest";
        return Err(ProblemDetails::bad_request(why));
    }
    let app = found_app(node, &app)?;
    let note = app.repair_number(request).await.map_err(|error| problem(&error))?;
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
    let reason = base::with_causes(error);
    match error {
        RepairError::NotOwner(_)
        | RepairError::Failed(MarkError::Log(eventlog::Error::LeadershipLost(_))) => {
            ProblemDetails::unavailable(NOT_OWNER, reason)
        }
        RepairError::OtherAction(_) => {
            ProblemDetails::new(StatusCode::CONFLICT, "other_action", reason)
        }
        RepairError::NoPartition { .. } => ProblemDetails::not_found(reason),
        RepairError::NoRow(_) => ProblemDetails::new(StatusCode::CONFLICT, "no_row", reason),
        RepairError::Changed { .. } => {
            ProblemDetails::new(StatusCode::CONFLICT, "row_changed", reason)
        }
        RepairError::Refused(why) => {
            let (status, code) = refusal(why);
            ProblemDetails::new(status, code, reason)
        }
        RepairError::Number(why) => {
            let (status, code) = number_refusal(why);
            ProblemDetails::new(status, code, reason)
        }
        RepairError::Failed(_) | RepairError::Table(_) | RepairError::NoResult(_) => {
            ProblemDetails::unavailable("storage", reason)
        }
    }
}

/// The status and the code of a refusal: 422 if the request names wrong facts, and 409 if the
/// stored rows do not allow the repair.
fn refusal(why: &MarkError) -> (StatusCode, &'static str) {
    use eventlog::{DamagedRow, DecodeError, Error};
    let (conflict, wrong) = (StatusCode::CONFLICT, StatusCode::UNPROCESSABLE_ENTITY);
    match why {
        MarkError::Readable(_) => (conflict, "event_readable"),
        MarkError::NumbersNeeded(_) => (wrong, "numbers_needed"),
        MarkError::OtherOffset { .. } => (wrong, "other_offset"),
        MarkError::Twice(_) => (wrong, "number_twice"),
        MarkError::NotAbove { .. } => (wrong, "number_not_above"),
        MarkError::NotBefore { .. } => (wrong, "offset_not_before"),
        MarkError::TooLow { .. } => (wrong, "offset_too_low"),
        MarkError::TooFar { .. } => (wrong, "offset_too_far"),
        MarkError::OtherPlace(_) => (wrong, "other_place"),
        MarkError::IsFencing => (wrong, "is_fencing"),
        MarkError::OtherPartition { .. } => (wrong, "other_partition"),
        MarkError::Ordered(_) => (conflict, "row_ordered"),
        MarkError::MayBeEvent(_) => (conflict, "may_be_event"),
        MarkError::WasEvent(_) => (conflict, "was_event"),
        MarkError::NotForeign(_) => (conflict, "row_needed"),
        MarkError::OtherVersion(_) => (conflict, "other_version"),
        MarkError::NoRow(_) => (conflict, "row_missing"),
        MarkError::Log(Error::Violation(_)) => (conflict, "row_changed"),
        MarkError::Log(Error::DamagedRow(damaged)) => match damaged {
            DamagedRow::Missing(_) => (conflict, "row_missing"),
            DamagedRow::Misplaced { .. } => (wrong, "other_event"),
            DamagedRow::Unreadable { why: DecodeError::OtherVersion(_), .. } => {
                (conflict, "other_version")
            }
            DamagedRow::Unreadable { .. }
            | DamagedRow::EventNotInLog { .. }
            | DamagedRow::Outdated { .. }
            | DamagedRow::EpochFell { .. } => (conflict, "row_damaged"),
        },
        MarkError::Log(_) | MarkError::Numbers(_) => (StatusCode::SERVICE_UNAVAILABLE, "storage"),
    }
}

/// As [`refusal`], for the row of a number.
fn number_refusal(why: &NumberRepairError) -> (StatusCode, &'static str) {
    let (conflict, wrong) = (StatusCode::CONFLICT, StatusCode::UNPROCESSABLE_ENTITY);
    match why {
        NumberRepairError::Readable(_) => (conflict, "number_readable"),
        NumberRepairError::NoRow => (conflict, "row_missing"),
        NumberRepairError::Changed => (conflict, "row_changed"),
        NumberRepairError::OtherPartition { .. } => (wrong, "other_partition"),
        NumberRepairError::TooLow { .. } => (wrong, "number_too_low"),
        NumberRepairError::NotOfSequence { .. } => (wrong, "number_not_of_sequence"),
        NumberRepairError::NotLastEvent { .. } => (wrong, "not_last_event"),
        NumberRepairError::NotStored(_) => (wrong, "offset_too_far"),
        NumberRepairError::Log(_) | NumberRepairError::Numbers(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, "storage")
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
