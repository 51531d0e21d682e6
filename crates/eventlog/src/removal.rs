//! The removal of a foreign row by an operator, under the leadership.

use bytes::Bytes;

use crate::{
    AppRow, Epoch, Log, Offset, PlaceEvidence, Result, TrustLevel, Violation,
    replay::has_event_beyond,
};

impl Log {
    /// Returns whether a row may be removed. A storage that orders plain writes by clocks hides
    /// every later ordered write of a removed row. So only rows may be removed that are written
    /// under a condition or read back at this level: a hidden row is then inserted. Every leader
    /// inserts the first event behind the end of the log.
    pub fn may_remove(&self, row: AppRow) -> bool {
        match (self.calls.settings.level, row) {
            (_, AppRow::Plog(_, offset)) if offset == self.tail().next => true,
            (TrustLevel::Zero, _) | (TrustLevel::One, AppRow::Plog(..) | AppRow::Wlog(..)) => true,
            (TrustLevel::One | TrustLevel::Two, _) => false,
        }
    }

    /// Returns whether the row at an offset of this log may be a foreign row behind the last event:
    /// no event is behind it, and no log of a workspace has a copy of it. The log is dense, so a
    /// row in front of another row was an event.
    ///
    /// # Errors
    /// Fails with the errors of the storage.
    pub async fn may_be_behind_the_end(&self, plog: Offset) -> Result<bool> {
        let epoch = match self.strays.level_2_wrote() {
            true => self.epoch_before(plog).await?,
            false => Epoch(0),
        };
        if has_event_beyond(&self.calls, &self.strays, plog, epoch).await? {
            return Ok(false);
        }
        // A copy of level 2 may be a stray, but the row may also be its event.
        let candidates =
            self.calls.reader.place_candidates_from(self.calls.partition, plog, Epoch(0)).await?;
        Ok(!candidates.iter().any(|place| place.evidence == PlaceEvidence::Copy))
    }

    /// Removes a row that holds exactly the bytes `found`.
    ///
    /// # Errors
    /// Fails with [`Error::Violation`](crate::Error::Violation) if the row holds other bytes now. A
    /// row that is gone already is a success.
    pub async fn remove(&self, row: AppRow, found: &Bytes) -> Result<()> {
        match self.swap(row, Some(found), None).await? {
            None => Ok(()),
            Some(there) => {
                let why = "changed after the removal began";
                Err(Violation::new(row, there.as_ref(), found, why).into())
            }
        }
    }
}

/// Returns a short text that tells the bytes of a row apart from others: their number and their
/// CRC-32.
pub fn row_digest(bytes: &[u8]) -> String {
    format!("{}-{:08x}", bytes.len(), crc32fast::hash(bytes))
}
