//! The replay of a log: at the beginning of a leadership, and after a write that failed.

mod apply_again;
mod entries;
mod rows;

use bytes::Bytes;
use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};

pub(crate) use self::entries::PlogEntries;
use crate::{Entry, Error, Log, Offset, PreparedEvent, Result};

/// The limits of the events that are in memory and applied together: their number and their bytes.
const BATCH_EVENTS: usize = 256;
const BATCH_BYTES: usize = 1 << 20;

impl Log {
    /// Returns the entries of the log from an offset on, to its end. At the end [`Log::tail`] is
    /// known.
    ///
    /// Invariant: an entry is returned only after all rows that follow from the event are stored. A
    /// simpler version returns entries as they are read. Leader A reads event 5, stores the offset
    /// behind it, and crashes before the records of event 5 are written; leader B replays from that
    /// offset. So the records are never written.
    ///
    /// The log ends at the first offset without an event. If a late write of an earlier leader puts
    /// an event there, the next write at that offset finds this event, or replaces it at trust
    /// level 2. If there are events behind a missing event, the replay fails with
    /// [`DamagedRow::Missing`](crate::DamagedRow::Missing).
    pub fn replay(&self, from: Offset) -> BoxStream<'_, Result<Entry>> {
        let entries = PlogEntries::new(self, from);
        let replay = Replay { log: self, entries, failed: None, is_over: false };
        let batches = stream::try_unfold(replay, |mut replay| async move {
            let batch = replay.batch().await?;
            Ok::<_, Error>(batch.map(|batch| (stream::iter(batch).map(Ok), replay)))
        });
        batches.try_flatten().boxed()
    }
}

/// The progress of a replay.
struct Replay<'l> {
    log: &'l Log,
    entries: PlogEntries<'l>,
    /// A read error. The replay returns the error after the earlier events are applied.
    failed: Option<Error>,
    is_over: bool,
}

impl Replay<'_> {
    /// Returns the next events, applied; `None` at the end.
    async fn batch(&mut self) -> Result<Option<Vec<Entry>>> {
        let mut batch: Vec<(Entry, Bytes)> = Vec::new();
        let mut size = 0;
        while batch.len() < BATCH_EVENTS
            && size < BATCH_BYTES
            && self.failed.is_none()
            && !self.is_over
        {
            match self.entries.next().await {
                Ok(Some((entry, bytes))) => {
                    size += bytes.len();
                    batch.push((entry, bytes));
                }
                Ok(None) => self.is_over = true,
                Err(error) => self.failed = Some(error),
            }
        }
        if batch.is_empty() {
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            self.log.set_tail(self.entries.tail());
            self.log.note_replayed();
            return Ok(None);
        }
        let group: Vec<PreparedEvent> =
            batch.iter().map(|(entry, bytes)| PreparedEvent::again(entry, bytes.clone())).collect();
        self.log.apply_again(&group).await?;
        Ok(Some(batch.into_iter().map(|(entry, _)| entry).collect()))
    }
}
