//! The removal of a foreign row by an operator, under the leadership.

use bytes::Bytes;

use crate::{
    AppRow, Epoch, Error, Log, Offset, PlaceEvidence, Result, TrustLevel, Violation,
    replay::has_event_beyond,
};

impl Log {
    /// Returns whether a row may be removed. Only rows that are written with a condition may be: a
    /// storage that orders plain writes by clocks would hide every later ordered write of a removed
    /// row.
    pub fn may_remove(&self, row: AppRow) -> bool {
        match (self.settings.level, row) {
            (TrustLevel::Zero, _) | (TrustLevel::One, AppRow::Plog(..) | AppRow::Wlog(..)) => true,
            (TrustLevel::One | TrustLevel::Two, _) => false,
        }
    }

    /// Returns whether the row at an offset of this log may be a foreign row behind the last event:
    /// no event is behind it, and no log of a workspace has a copy of it. The log is dense, so a row
    /// in front of another row was an event.
    ///
    /// # Errors
    /// Fails with the errors of the storage.
    pub async fn may_be_behind_the_end(&self, plog: Offset) -> Result<bool> {
        let epoch = match self.may_be_stray(Epoch(0)) {
            true => self.epoch_before(plog).await?,
            false => Epoch(0),
        };
        if has_event_beyond(self, plog, epoch).await? {
            return Ok(false);
        }
        let candidates = self.reader.place_candidates(self.partition, plog).await?;
        Ok(!candidates.iter().any(|place| place.evidence == PlaceEvidence::Copy))
    }

    /// Removes a row that holds exactly the bytes `found`.
    ///
    /// # Errors
    /// Fails with [`Error::Violation`] if the row holds other bytes now. A row that is gone already
    /// is a success.
    pub async fn remove(&self, row: AppRow, found: &Bytes) -> Result<()> {
        match self.swap(row, Some(found), None).await? {
            None => Ok(()),
            Some(there) => {
                let (expected, why) = (found.clone(), "changed after the removal began");
                let violation = Violation {
                    row,
                    found: there,
                    expected,
                    why,
                    is_retryable: false,
                    replaces_record: false,
                };
                Err(Error::from(violation))
            }
        }
    }
}

/// Returns a short text that tells the bytes of a row apart from others: their number and their
/// CRC-32.
pub fn row_digest(bytes: &[u8]) -> String {
    format!("{}-{:08x}", bytes.len(), crc32fast::hash(bytes))
}
