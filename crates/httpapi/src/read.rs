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
    reply::{Body, Trouble, stream_of},
    room::Share,
    route::{limit, parameter},
    rows::{json_of_entry, json_of_record},
    turns::Turns,
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
const LOOKED_AT: usize = 10_000;

/// Lists the documents of a collection in the order of their ids.
pub(crate) async fn docs(
    partition: &LocalPartition<'_>,
    ws: WsId,
    table: &Table,
    query: Option<&str>,
) -> Result<Vec<u8>, Trouble> {
    if table.kind() != TableKind::CDoc {
        let reason = format!("{} is no table of documents of a collection", table.name());
        return Err(Trouble::bad_request(reason));
    }
    let limit = limit(query, MOST_DOCS)?;
    let first = standard::FIRST_CRECORD_ID;
    let after: u64 = parameter(query, "after")?.unwrap_or(0);
    let last = partition.last_number(ws, standard::CRECORD_ID).await;
    let last = last.map_err(unreadable)?;
    let from = RecordId(first.max(after.saturating_add(1)));
    let mut records = partition.records(ws, from, RecordId(last.unwrap_or(first)));
    let mut page = br#"{"docs":["#.to_vec();
    let (mut count, mut looked_at, mut next, mut step) = (0, 0, None, 0);
    while let Some(stored) = records.try_next().await.map_err(unreadable)? {
        looked_at += 1;
        let StoredRecord { record, .. } = &stored;
        let is_one = record.table == *table.name() && record.is_active;
        if is_one {
            if count > 0 {
                page.push(b',');
            }
            let doc = json_of_record(&stored).to_string();
            page.extend_from_slice(doc.as_bytes());
            count += 1;
        }
        if count == limit || looked_at == LOOKED_AT || page.len() >= PAGE_BYTES {
            next = Some(record.id.0);
            break;
        }
        if looked_at.is_multiple_of(STEP_RECORDS) || page.len() - step >= STEP_BYTES {
            step = page.len();
            yield_now().await;
        }
    }
    if count == 0 && next.is_none() {
        exists(partition, ws).await?;
    }
    page.extend_from_slice(format!(r#"],"next":{}}}"#, json!(next)).as_bytes());
    Ok(page)
}

/// The resources that a log holds while it is being sent.
pub(crate) struct Held {
    /// The permit of one of the logs that may be sent at the same time.
    pub(crate) _log: OwnedSemaphorePermit,
    pub(crate) _share: Share,
    pub(crate) turns: Turns,
}

/// Streams the log of a workspace, one event a line, up to the last event that is applied.
pub(crate) async fn log(
    partition: &LocalPartition<'_>,
    ws: WsId,
    query: Option<&str>,
    held: Held,
) -> Result<Response<Body>, Trouble> {
    let from: u64 = parameter(query, "from")?.unwrap_or(Offset::FIRST.0);
    let limit = limit(query, MOST_EVENTS)?;
    if from == 0 {
        return Err(Trouble::bad_request("the first event of a log is at offset 1"));
    }
    let commands = partition.commands().clone();
    let entries = partition.log(ws, Offset(from));
    let mut entries = entries.map_err(|busy| Trouble::refused(Refused::Busy(busy)))?.boxed();
    // The first read comes before the answer begins. If it fails, the client still gets a problem.
    let first = held.turns.work(entries.try_next()).await.map_err(unreadable)?;
    if first.is_none() {
        exists(partition, ws).await?;
    }
    let entries = stream::iter(first.map(Ok)).chain(entries).take(limit).boxed();
    let pieces = stream::try_unfold(Lines { entries, commands, held }, |mut lines| async move {
        let turns = lines.held.turns.clone();
        let piece = turns.work(lines.next()).await?;
        Ok(piece.map(|piece| (Frame::data(piece.into()), lines)))
    });
    Ok(stream_of("application/x-ndjson", pieces.boxed()))
}

/// A log that is being sent.
struct Lines {
    entries: BoxStream<'static, eventlog::Result<Entry>>,
    commands: Commands,
    held: Held,
}

impl Lines {
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
            return Err(io::Error::other("this node does not lead any more"));
        }
        Ok((!lines.is_empty()).then_some(lines))
    }
}

pub(crate) fn unreadable(error: eventlog::Error) -> Trouble {
    if error.is_lasting() {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        return Trouble::new(status, "internal", format!("{error}: an operator must put it right"));
    }
    Trouble::unavailable("storage", error.to_string())
}

/// Checks that a workspace exists. An empty answer needs this check.
async fn exists(partition: &LocalPartition<'_>, ws: WsId) -> Result<(), Trouble> {
    match partition.record(ws, Application::DESCRIPTOR).await.map_err(unreadable)? {
        Some(_) => Ok(()),
        None => Err(Trouble::not_found(format!("there is no workspace {}", ws.0))),
    }
}

/// Reads a record of a table.
pub(crate) async fn record(
    partition: &LocalPartition<'_>,
    ws: WsId,
    table: &Table,
    id: RecordId,
) -> Result<StoredRecord, Trouble> {
    let stored = partition.record(ws, id).await.map_err(unreadable)?;
    let stored = stored.filter(|stored| stored.record.table == *table.name());
    stored.ok_or_else(|| Trouble::not_found(format!("there is no {} {}", table.name(), id.0)))
}
