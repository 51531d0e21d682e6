//! The replay of a log: at the beginning of a leadership, and after a write that failed. Also the
//! reading of a log without a replay.

mod entries;
mod event_age;

use bytes::Bytes;
use clock::WallTime;
use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};

use self::entries::PlogEntries;
use crate::{Entry, Error, LogWriter, Offset, PreparedEvent, Result, plan::NewRows};

/// The limits of the events that are in memory and applied together: their number and their bytes.
const BATCH_EVENTS: usize = 256;
const BATCH_BYTES: usize = 1 << 20;

impl LogWriter {
    /// Returns the entries of the log from an offset on, to its end. At the end [`LogWriter::tail`]
    /// is known.
    ///
    /// Invariant: an entry is returned only after all rows that follow from the event are stored. A
    /// simpler version returns entries as they are read. Leader A reads event 5, stores the offset
    /// after it, and crashes before the records of event 5 are written; leader B replays from that
    /// offset. So the records are never written.
    ///
    /// The log ends at the first offset without an event. If a late write of an earlier leader puts
    /// an event there, the next write at that offset finds this event. A stray of trust level 2 is
    /// replaced instead. If there are events after a missing event, the replay fails with
    /// [`DamagedRow::Missing`](crate::DamagedRow::Missing).
    pub fn replay(&self, from: Offset) -> BoxStream<'_, Result<Entry>> {
        let entries = PlogEntries::new(&self.calls, &self.strays, from);
        let replay = Replay {
            log: self,
            entries,
            failed: None,
            next: None,
            is_over: false,
            latest_time: None,
        };
        let batches = stream::try_unfold(replay, |mut replay| async move {
            let batch = replay.batch().await?;
            Ok::<_, Error>(batch.map(|batch| (stream::iter(batch).map(Ok), replay)))
        });
        batches.try_flatten().boxed()
    }

    /// Returns the entries of the log from an offset on, to its end, with their bytes. The log ends
    /// where a [replay](LogWriter::replay) ends, and nothing is applied. The stream is lazy, and
    /// reads logs of any length in bounded memory.
    pub fn entries(&self, from: Offset) -> BoxStream<'_, Result<(Entry, Bytes)>> {
        let entries = PlogEntries::new(&self.calls, &self.strays, from);
        stream::try_unfold(entries, |mut entries| async move {
            let next = entries.next().await?;
            Ok::<_, Error>(next.map(|next| (next, entries)))
        })
        .boxed()
    }
}

/// The progress of a replay.
struct Replay<'l> {
    log: &'l LogWriter,
    entries: PlogEntries<'l>,
    /// A read error. The replay returns the error after the earlier events are applied.
    failed: Option<Error>,
    /// The first event after the last batch, which makes a row that the batch writes.
    next: Option<(Entry, Bytes)>,
    is_over: bool,
    /// The time of an event at the end of the log or before it, once it was searched.
    latest_time: Option<WallTime>,
}

impl Replay<'_> {
    /// Returns the next events, applied; `None` at the end.
    ///
    /// Invariant: no event of a batch makes a row that an earlier event of the batch writes. A
    /// simpler version applies such events together. A number is given twice; events 7 and 9 make a
    /// record with it. So the record of event 9 would be written, or that of event 7, and the
    /// number that was given twice would not be noticed.
    async fn batch(&mut self) -> Result<Option<Vec<Entry>>> {
        let (mut batch, mut group) = (Vec::new(), Vec::new());
        let (mut size, mut made) = (0, NewRows::default());
        while batch.len() < BATCH_EVENTS
            && size < BATCH_BYTES
            && self.failed.is_none()
            && !self.is_over
        {
            let next = match self.next.take() {
                Some(next) => Ok(Some(next)),
                None => self.entries.next().await,
            };
            match next {
                Ok(Some((entry, bytes))) => {
                    let event = PreparedEvent::again(&entry, bytes.clone());
                    if made.add(&event).is_some() && !batch.is_empty() {
                        self.next = Some((entry, bytes));
                        break;
                    }
                    size += bytes.len();
                    batch.push(entry);
                    group.push(event);
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
            self.log.applier.note_replayed();
            return Ok(None);
        }
        let age_at = self.age_at(&group).await?;
        let writes = self.log.plan_at(&group, age_at)?;
        self.log.applier.apply_again(&group, writes).await?;
        Ok(Some(batch))
    }
}
