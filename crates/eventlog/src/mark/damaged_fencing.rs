//! The repair of a fencing entry that cannot be read: the entry is written again.

use bytes::Bytes;
use clock::WallTime;

use super::damaged_event::readable_entry;
use crate::{AppRow, DamagedRow, Entry, Epoch, FencingEntry, Log, Offset, Result};

/// A row of a log that cannot be read, and the fencing entry for its place.
#[derive(Clone, Debug)]
pub struct DamagedFencing {
    row: AppRow,
    /// The bytes in the row.
    found: Bytes,
    entry: FencingEntry,
}

impl DamagedFencing {
    /// Returns the entry that is written again. It has the epoch and the time of the entry in
    /// front.
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
        let partition = self.partition();
        let row = AppRow::Plog(partition, plog);
        let found = self.get(row).await?.ok_or(DamagedRow::Missing(row))?;
        if readable_entry(self.reader.entry(row, &found))?.is_some() {
            return Ok(None);
        }
        let (epoch, time) = self.epoch_and_time_before(plog).await?;
        let entry = FencingEntry { epoch, partition, plog, time };
        Ok(Some(DamagedFencing { row, found, entry }))
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
            let row = AppRow::Plog(self.partition(), offset);
            let there = self.get(row).await?.ok_or(DamagedRow::Missing(row))?;
            let before = self.reader.entry(row, &there)?;
            epoch = epoch.max(before.epoch());
            if let Some(time) = before.time() {
                return Ok((epoch, time));
            }
        }
        Ok((epoch, WallTime::from_nanos(0)))
    }
}
