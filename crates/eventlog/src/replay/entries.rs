//! The entries of a log in their order.
//!
//! Invariant: the epochs of the entries never fall, and no entry has a later epoch than this
//! leader.

use bytes::Bytes;

use super::rows::{PlogRows, has_event_beyond};
use crate::{
    AppRow, DamagedRow, Entry, Epoch, Error, Offset, Result, calls::Calls, strays::Strays,
    writer::Tail,
};

/// The entries of a log from an offset on.
pub(super) struct PlogEntries<'l> {
    calls: &'l Calls,
    strays: &'l Strays,
    rows: PlogRows<'l>,
    /// The tail of the events that were read.
    tail: Tail,
    /// Whether the event in front of the first one was read.
    is_known: bool,
}

impl<'l> PlogEntries<'l> {
    pub(super) fn new(calls: &'l Calls, strays: &'l Strays, from: Offset) -> PlogEntries<'l> {
        let tail = Tail { next: from, ..Tail::NONE };
        PlogEntries { calls, strays, rows: PlogRows::new(calls, strays), tail, is_known: false }
    }

    /// Returns the tail of the events that were read.
    pub(super) fn tail(&self) -> Tail {
        self.tail
    }

    /// Returns the next entry and its bytes; `None` at the end of the log.
    pub(super) async fn next(&mut self) -> Result<Option<(Entry, Bytes)>> {
        if !self.is_known {
            self.read_before().await?;
            self.is_known = true;
        }
        let next = self.tail.next;
        let row = AppRow::Plog(self.calls.partition, next);
        let Some(bytes) = self.rows.at(next, self.tail.epoch).await? else { return Ok(None) };
        let entry = self.calls.reader.entry(row, &bytes)?;
        let epoch = entry.epoch();
        if epoch > self.calls.fence.epoch() {
            return Err(self.calls.fence.note_later_leader(epoch).into());
        }
        if epoch < self.tail.epoch {
            if self.strays.is_stray_event(row, epoch).await? {
                // A leader that had lost its leadership left this event behind. The next write at
                // this offset replaces the event.
                return match has_event_beyond(self.calls, self.strays, next, self.tail.epoch)
                    .await?
                {
                    true => Err(DamagedRow::Missing(row).into()),
                    false => Ok(None),
                };
            }
            return Err(self.epoch_fell(row, epoch));
        }
        let time = entry.time().unwrap_or(self.tail.time).max(self.tail.time);
        self.tail = Tail { next: next.next(), epoch, time };
        Ok(Some((entry, bytes)))
    }

    /// Reads the event in front of the first one. The epochs and times of later events may not be
    /// lower than those of this event. If this event is missing, data is lost.
    ///
    /// Invariant: this leader never writes behind an event of a later epoch. A simpler version
    /// reads only from the stored offset on. Leader A stalls before it reads the log; leader B
    /// writes events and stores the offset behind them; A goes on from that offset and finds no
    /// event. So A would write behind events of a later epoch, and no later leader could read the
    /// log.
    async fn read_before(&mut self) -> Result<()> {
        let mut offset = self.tail.next;
        while offset > Offset::FIRST {
            offset = Offset(offset.0 - 1);
            let before = self.calls.entry_at(offset).await?;
            let epoch = before.epoch();
            if epoch > self.calls.fence.epoch() {
                return Err(self.calls.fence.note_later_leader(epoch).into());
            }
            self.tail.epoch = self.tail.epoch.max(epoch);
            // A marker has no time. The event in front of it has a time.
            if let Some(time) = before.time() {
                self.tail.time = time;
                break;
            }
        }
        Ok(())
    }

    fn epoch_fell(&self, row: AppRow, epoch: Epoch) -> Error {
        DamagedRow::EpochFell { row, epoch: epoch.0, before: self.tail.epoch.0 }.into()
    }
}
