//! The entries of a log in their order, and the end of the log.
//!
//! Invariant: the epochs of the entries never fall, and no entry has a later epoch than this
//! leader.

use bytes::Bytes;
use futures::{TryStreamExt, stream::BoxStream};

use crate::{
    AppRow, DamagedRow, Entry, Offset, Result, calls::Calls, reader::LogRow, strays::Strays,
    writer::Tail,
};

/// The entries of a log from an offset on.
pub(super) struct PlogEntries<'l> {
    calls: &'l Calls,
    strays: &'l Strays,
    /// The rows from the next offset on, which are read together.
    rows: Option<BoxStream<'static, Result<LogRow>>>,
    /// The tail of the events that were read.
    tail: Tail,
    /// Whether the event before the first one was read.
    is_known: bool,
}

impl<'l> PlogEntries<'l> {
    pub(super) fn new(calls: &'l Calls, strays: &'l Strays, from: Offset) -> PlogEntries<'l> {
        let tail = Tail { next: from, ..Tail::NONE };
        PlogEntries { calls, strays, rows: None, tail, is_known: false }
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
        let Some(bytes) = self.bytes_at(next).await? else { return Ok(None) };
        let entry = self.calls.reader.entry(row, &bytes)?;
        let epoch = entry.epoch();
        if epoch > self.calls.fence.epoch() {
            return Err(self.calls.fence.note_later_leader(epoch).into());
        }
        if epoch < self.tail.epoch {
            if self.strays.is_stray_event(row, epoch).await? {
                // A leader that had lost its leadership left this event behind. The next write at
                // this offset replaces the event.
                return match self.strays.has_event_beyond(next, self.tail.epoch).await? {
                    true => Err(DamagedRow::Missing(row).into()),
                    false => Ok(None),
                };
            }
            let before = self.tail.epoch.0;
            return Err(DamagedRow::EpochFell { row, epoch: epoch.0, before }.into());
        }
        let time = entry.time().unwrap_or(self.tail.time).max(self.tail.time);
        self.tail = Tail { next: next.next(), epoch, time };
        Ok(Some((entry, bytes)))
    }

    /// Returns the bytes of the next row.
    ///
    /// Invariant: `None` means that the log ends before this offset, and [`DamagedRow::Missing`]
    /// means that an event comes after a gap. A simpler version trusts the rows that were read
    /// together. The read passes the empty offset 5; a late write of an earlier leader puts the
    /// events 5 and 6 into the log; the read returns event 6. So the version would report that
    /// event 5 is missing, although the log is whole.
    async fn bytes_at(&mut self, next: Offset) -> Result<Option<Bytes>> {
        match self.read_on(next).await? {
            Some((offset, bytes)) if offset == next => return Ok(Some(bytes)),
            _ => {}
        }
        // The event may have landed after its neighbours were read, or while the events after it
        // were read. So its row is read again before it counts as missing.
        let row = AppRow::Plog(self.calls.partition, next);
        let mut late = self.calls.get(row).await?;
        if late.is_none() && self.strays.has_event_beyond(next, self.tail.epoch).await? {
            late = Some(self.calls.get(row).await?.ok_or(DamagedRow::Missing(row))?);
        }
        if late.is_some() {
            // The rows after a row that was missing are read again.
            self.rows = None;
        }
        Ok(late)
    }

    async fn read_on(&mut self, from: Offset) -> Result<Option<LogRow>> {
        let calls = self.calls;
        let rows = self.rows.get_or_insert_with(|| calls.log_rows(from));
        rows.try_next().await
    }

    /// Reads the event before the first one. The epochs and times of later events must not be lower
    /// than those of this event. If this event is missing, data is lost.
    ///
    /// Invariant: this leader never writes after an event of a later epoch. A simpler version reads
    /// only from the stored offset on. Leader A stalls before it reads the log; leader B writes
    /// events and stores the offset after them; A goes on from that offset and finds no event. So A
    /// would write after events of a later epoch, and no later leader could read the log.
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
            // A marker has no time. The event before it has a time.
            if let Some(time) = before.time() {
                self.tail.time = time;
                break;
            }
        }
        Ok(())
    }
}
