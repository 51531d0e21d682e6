//! Sending the log of a workspace while it is read.

use std::io;

use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use hyper::{Response, body::Frame};
use processor::{Commands, Refused};
use tokio::sync::OwnedSemaphorePermit;
use vvm::{
    LocalPartition,
    eventlog::{self, Entry, Offset, WsId},
};

use super::record::{STEP_BYTES, check_workspace_exists, read_problem};
use crate::{
    memory::MemoryShare,
    problem::ProblemDetails,
    query::{limit, parameter},
    read_throttle::ReadThrottle,
    response::{Body, stream_response},
    rows::json_of_entry,
};

/// The largest number of events in an answer.
const MOST_EVENTS: usize = 1_000_000;

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
