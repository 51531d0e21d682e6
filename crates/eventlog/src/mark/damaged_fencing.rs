//! The repair of a fencing entry that cannot be read: the entry is written again.

use bytes::Bytes;
use clock::WallTime;

use super::damaged_event::readable_entry;
use crate::{
    AppRow, DamagedRow, Entry, Epoch, FencingEntry, Log, Offset, Result, wire::fencing_in_damaged,
};

/// A row of a log that cannot be read, and the fencing entry for its place.
#[derive(Clone, Debug)]
pub struct DamagedFencing {
    row: AppRow,
    /// The bytes in the row.
    found: Bytes,
    entry: FencingEntry,
}

impl DamagedFencing {
    /// Returns the entry that is written again. It has the time of the entry in front.
    pub fn entry(&self) -> FencingEntry {
        self.entry
    }

    /// Returns the bytes in the row.
    pub fn found(&self) -> &Bytes {
        &self.found
    }
}

impl Log {
    /// Returns a row of this log that cannot be read, and in which the caller knows that there was
    /// a fencing entry. Returns `None` if the row can be read.
    ///
    /// # Errors
    /// Fails with the errors of the storage, with [`DamagedRow::Missing`] if there is no row at the
    /// offset or in front of it, and with [`DamagedRow::Unreadable`] if another version of the
    /// program wrote the row.
    pub async fn damaged_fencing(&self, plog: Offset) -> Result<Option<DamagedFencing>> {
        let partition = self.calls.partition;
        let row = AppRow::Plog(partition, plog);
        let found = self.calls.get(row).await?.ok_or(DamagedRow::Missing(row))?;
        if readable_entry(self.calls.reader.entry(row, &found))?.is_some() {
            return Ok(None);
        }
        let (before, time) = self.epoch_and_time_before(plog).await?;
        let named = fencing_in_damaged(&found)
            .filter(|named| (named.partition, named.plog) == (partition, plog))
            .filter(|named| before <= named.epoch && named.epoch <= self.calls.fence.epoch());
        let epoch = match named {
            Some(named) => named.epoch,
            None => self.epoch_behind(row, &found, plog).await?.max(before),
        };
        let entry = FencingEntry { epoch, partition, plog, time };
        Ok(Some(DamagedFencing { row, found, entry }))
    }

    /// Returns an epoch that the entry in a damaged row may have had, by the entry behind it.
    ///
    /// Invariant: no stray behind the row comes into the log. A simpler version takes the epoch of
    /// the entry in front. At level 2 leader A of epoch 1 puts events 7 and 8, and gets no answer;
    /// leader B of epoch 2 fences the log at 7, and rejects the command of event 8; the put of A
    /// lands, so event 8 is a stray; entry 7 is damaged, and written again with epoch 1. So the
    /// next leader would find event 8 in the log, and do the rejected command.
    async fn epoch_behind(&self, row: AppRow, found: &Bytes, plog: Offset) -> Result<Epoch> {
        let next = AppRow::Plog(self.calls.partition, plog.next());
        let Some(behind) = self.calls.get(next).await? else { return Ok(self.calls.fence.epoch()) };
        let behind = self.calls.reader.entry(next, &behind)?.epoch();
        match self.strays.may_be_stray(behind) {
            // It is not known whether the entry behind is in the log. The error is that of the
            // damaged row.
            true => Ok(self.calls.reader.entry(row, found)?.epoch()),
            false => Ok(behind.min(self.calls.fence.epoch())),
        }
    }

    /// Writes a fencing entry again, in the place of exactly the bytes that were found.
    ///
    /// # Errors
    /// Fails with [`Error::Violation`](crate::Error::Violation) if the row holds other bytes now.
    pub async fn restore_fencing(&self, damaged: &DamagedFencing) -> Result<()> {
        let bytes = Entry::Fencing(damaged.entry).to_bytes();
        self.replace(damaged.row, Some(&damaged.found), &bytes).await
    }

    /// Returns the highest epoch and the last time in front of `plog`. A marker has no time.
    async fn epoch_and_time_before(&self, plog: Offset) -> Result<(Epoch, WallTime)> {
        let (mut offset, mut epoch) = (plog, Epoch(0));
        while offset > Offset::FIRST {
            offset = Offset(offset.0 - 1);
            let row = AppRow::Plog(self.calls.partition, offset);
            let there = self.calls.get(row).await?.ok_or(DamagedRow::Missing(row))?;
            let before = self.calls.reader.entry(row, &there)?;
            epoch = epoch.max(before.epoch());
            if let Some(time) = before.time() {
                return Ok((epoch, time));
            }
        }
        Ok((epoch, WallTime::from_nanos(0)))
    }
}
