//! Reading documents, lists of documents and logs.

use std::io;

use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use hyper::{Response, StatusCode, body::Frame};
use processor::{Application, Commands, Refused};
use serde_json::json;
use tokio::{sync::OwnedSemaphorePermit, task::yield_now};
use vvm::{
    LocalPartition,
    eventlog::{self, Entry, Offset, RecordId, StoredRecord, Table, TableKind, WsId},
    isequencer::standard,
};

use crate::{
    memory::MemoryShare,
    read_throttle::ReadThrottle,
    response::{Body, ProblemDetails, stream_response},
    route::{limit, parameter},
    rows::{json_of_entry, json_of_record},
};

/// The share of memory that an answer takes before it is read: for a page of the storage, and for
/// the JSON of that page. Only records and events of more than about 1 MiB need more.
pub const READ_BYTES: usize = 2 << 20;

/// The largest number of documents in a list, and of events in an answer.
const MOST_DOCS: usize = 1_000;
const MOST_EVENTS: usize = 1_000_000;

/// The number of bytes after which a page of documents ends. The last document may exceed it,
/// because documents may be large.
const PAGE_BYTES: usize = 1 << 20;

/// The number of bytes of an answer after which a step ends. A step should take less than a
/// millisecond, because the other requests on the same thread wait for it.
const STEP_BYTES: usize = 64 << 10;

/// The number of records that one step examines.
const STEP_RECORDS: usize = 100;

/// The number of records that one answer examines. Many records of other tables may stand between
/// two records of a table.
const MOST_EXAMINED: usize = 10_000;

/// Lists the documents of a collection in the order of their ids.
pub(crate) async fn list_docs(
    partition: &LocalPartition<'_>,
    ws: WsId,
    table: &Table,
    query: Option<&str>,
) -> Result<Vec<u8>, ProblemDetails> {
    if table.kind() != TableKind::CDoc {
        let reason = format!("{} is not a table of documents of a collection (CDoc)", table.name());
        return Err(ProblemDetails::bad_request(reason));
    }
    let limit = limit(query, MOST_DOCS)?;
    let first = standard::FIRST_CRECORD_ID;
    let after: u64 = parameter(query, "after")?.unwrap_or(0);
    let last = partition.last_number(ws, standard::CRECORD_ID).await;
    let last = last.map_err(read_problem)?;
    let from = RecordId(first.max(after.saturating_add(1)));
    let mut records = partition.records(ws, from, RecordId(last.unwrap_or(first)));
    let mut page = br#"{"docs":["#.to_vec();
    let (mut count, mut examined, mut next, mut step) = (0, 0, None, 0);
    while let Some(stored) = records.try_next().await.map_err(read_problem)? {
        examined += 1;
        let StoredRecord { record, .. } = &stored;
        let is_listed = record.table == *table.name() && record.is_active;
        if is_listed {
            if count > 0 {
                page.push(b',');
            }
            let doc = json_of_record(&stored).to_string();
            page.extend_from_slice(doc.as_bytes());
            count += 1;
        }
        if count == limit || examined == MOST_EXAMINED || page.len() >= PAGE_BYTES {
            next = Some(record.id.0);
            break;
        }
        if examined.is_multiple_of(STEP_RECORDS) || page.len() - step >= STEP_BYTES {
            step = page.len();
            yield_now().await;
        }
    }
    if count == 0 && next.is_none() {
        check_workspace_exists(partition, ws).await?;
    }
    page.extend_from_slice(format!(r#"],"next":{}}}"#, json!(next)).as_bytes());
    Ok(page)
}

/// The resources that a log holds while it is being sent.
pub(crate) struct LogPermits {
    /// The permit of one of the logs that may be sent at the same time.
    pub(crate) _log: OwnedSemaphorePermit,
    pub(crate) _share: MemoryShare,
    pub(crate) throttle: ReadThrottle,
}

/// Streams the log of a workspace, one event a line, up to the last event that is applied.
pub(crate) async fn stream_log(
    partition: &LocalPartition<'_>,
    ws: WsId,
    query: Option<&str>,
    held: LogPermits,
) -> Result<Response<Body>, ProblemDetails> {
    let from: u64 = parameter(query, "from")?.unwrap_or(Offset::FIRST.0);
    let limit = limit(query, MOST_EVENTS)?;
    if from == 0 {
        return Err(ProblemDetails::bad_request(
            "`from` must be 1 or more: the first event of a log has offset 1",
        ));
    }
    let commands = partition.commands().clone();
    let entries = partition.log(ws, Offset(from));
    let mut entries = entries.map_err(|busy| ProblemDetails::refused(Refused::Busy(busy)))?.boxed();
    // The first read comes before the answer begins. If it fails, the client still gets a problem.
    let first = held.throttle.run(entries.try_next()).await.map_err(read_problem)?;
    if first.is_none() {
        check_workspace_exists(partition, ws).await?;
    }
    let entries = stream::iter(first.map(Ok)).chain(entries).take(limit).boxed();
    let pieces = stream::try_unfold(LogLines { entries, commands, held }, |mut lines| async move {
        let throttle = lines.held.throttle.clone();
        let piece = throttle.run(lines.next()).await?;
        Ok(piece.map(|piece| (Frame::data(piece.into()), lines)))
    });
    Ok(stream_response("application/x-ndjson", pieces.boxed()))
}

/// A log that is being sent.
struct LogLines {
    entries: BoxStream<'static, eventlog::Result<Entry>>,
    commands: Commands,
    held: LogPermits,
}

impl LogLines {
    /// Reads some whole lines; `None` at the end.
    async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut lines = Vec::new();
        while lines.len() < STEP_BYTES
            && let Some(entry) = self.entries.try_next().await.map_err(io::Error::other)?
        {
            serde_json::to_writer(&mut lines, &json_of_entry(&entry))?;
            lines.push(b'\n');
        }
        if !self.commands.may_answer() {
            return Err(io::Error::other("this node no longer leads the partition"));
        }
        Ok((!lines.is_empty()).then_some(lines))
    }
}

pub(crate) fn read_problem(error: eventlog::Error) -> ProblemDetails {
    if error.is_lasting() {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        return ProblemDetails::new(
            status,
            "internal",
            format!("{error}: an operator must repair it"),
        );
    }
    ProblemDetails::unavailable("storage", error.to_string())
}

/// Checks that a workspace exists. An empty answer needs this check.
async fn check_workspace_exists(
    partition: &LocalPartition<'_>,
    ws: WsId,
) -> Result<(), ProblemDetails> {
    match partition.record(ws, Application::DESCRIPTOR).await.map_err(read_problem)? {
        Some(_) => Ok(()),
        None => Err(ProblemDetails::not_found(format!("workspace {} does not exist", ws.0))),
    }
}

/// Reads a record of a table.
pub(crate) async fn read_record(
    partition: &LocalPartition<'_>,
    ws: WsId,
    table: &Table,
    id: RecordId,
) -> Result<StoredRecord, ProblemDetails> {
    let stored = partition.record(ws, id).await.map_err(read_problem)?;
    let stored = stored.filter(|stored| stored.record.table == *table.name());
    stored.ok_or_else(|| {
        ProblemDetails::not_found(format!("{} {} does not exist", table.name(), id.0))
    })
}
