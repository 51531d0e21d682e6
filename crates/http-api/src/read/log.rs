//! Sending a log while it is read.

use std::{io, sync::Arc};

use clock::Clock;
use futures::{StreamExt, stream};
use http_server::{
    authentication::TokenEnd,
    event_stream::cut_at,
    limits::{Limit, Permit},
    problem::{Answer, ProblemDetails},
    query::{END, END_WITHOUT_FOLLOW, NO_OFFSET, limit, parameter},
    response::stream_response,
};
use hyper::body::Frame;
use processor::LogName;
use vvm::{LocalPartition, OwnedLog, eventlog::Offset};

use super::{
    events::LogEvents,
    record::{STEP_BYTES, check_workspace_exists, read_problem},
};
use crate::refusal::problem_of_busy;

/// The largest number of events in an answer.
pub(crate) const MOST_EVENTS: usize = 1_000_000;

/// Sends a log, one event a line, up to the last applied event. When the token of the client ends,
/// the answer is cut.
pub(crate) async fn send_log(
    clock: &Clock,
    turns: &Arc<Limit>,
    partition: &LocalPartition<'_>,
    name: LogName,
    query: Option<&str>,
    permits: [Permit; 2],
    token_end: TokenEnd,
) -> Answer {
    if parameter::<String>(query, "from")?.as_deref() == Some(END) {
        return Err(ProblemDetails::bad_request(END_WITHOUT_FOLLOW));
    }
    let from: u64 = parameter(query, "from")?.unwrap_or(Offset::FIRST.0);
    let limit = limit(query, MOST_EVENTS)?;
    if from == 0 {
        return Err(ProblemDetails::bad_request(NO_OFFSET));
    }
    let log = partition.log(name);
    let entries = log.read(Offset(from));
    let entries = entries.map_err(problem_of_busy)?;
    let mut events = LogEvents::new(entries, name, Arc::clone(turns));
    let has_events = events.read_first().await.map_err(read_problem)?;
    if !has_events && let LogName::Workspace(ws) = name {
        check_workspace_exists(partition, ws).await?;
    }
    let lines = LogLines { events: events.limited(limit), log, _permits: permits };
    let pieces = stream::try_unfold(lines, |mut lines| async move {
        let piece = lines.next().await?;
        Ok(piece.map(|piece| (Frame::data(piece.into()), lines)))
    });
    let pieces = cut_at(token_end, clock.clone(), pieces.boxed());
    Ok(stream_response("application/x-ndjson", pieces))
}

/// A log that is being sent.
struct LogLines {
    events: LogEvents,
    log: OwnedLog,
    _permits: [Permit; 2],
}

impl LogLines {
    /// Reads some whole lines; `None` at the end.
    async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let events = self.events.next(STEP_BYTES).await.map_err(io::Error::other)?;
        if !self.log.may_answer() {
            return Err(io::Error::other("this node no longer owns the partition"));
        }
        let mut lines = Vec::with_capacity(events.iter().map(|event| event.len() + 1).sum());
        for event in &events {
            lines.extend_from_slice(event);
            lines.push(b'\n');
        }
        Ok((!lines.is_empty()).then_some(lines))
    }
}
