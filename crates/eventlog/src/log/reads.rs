//! The reads of a leader in its log.

use bytes::Bytes;
use futures::stream::BoxStream;
use istorage::{AppStorageExt, Consistency};

use crate::{AppRow, EventPlace, Log, Offset, Result, Violation, reader::LogRow};

impl Log {
    /// Reads a row.
    ///
    /// Invariant: a leader reads its log linearizably at every level. A simpler version reads
    /// plainly at level 2, at which a leader puts its later events. Leader A stands still before it
    /// puts event 7; leader B inserts its own event 7 as its first one; servers accept the insert,
    /// and B dies before the insert is committed; the put of A lands; leader C reads and applies
    /// the event of A; C inserts event 8, which commits the insert of B. So the log has the event
    /// of B, and C has applied another one.
    pub(crate) async fn get(&self, row: AppRow) -> Result<Option<Bytes>> {
        let deadline = self.reader.deadline();
        Ok(self.reader.storage().get_linearizable(&row.key(), deadline).await?)
    }

    pub(crate) fn log_rows(&self, from: Offset) -> BoxStream<'static, Result<LogRow>> {
        let partition = self.partition;
        self.reader.log_rows(
            move |offset| AppRow::Plog(partition, offset),
            from,
            Consistency::Linearizable,
        )
    }

    /// Returns whether an event is in the log, for a caller that has found another row of the
    /// event. Where the log is written conditionally, such an event is in the log. An event of
    /// level 2 may have been replaced by another one.
    ///
    /// # Errors
    /// Fails with the errors of the storage. Also fails if the event cannot be read, because it is
    /// then not known whether the event is this one.
    pub async fn has_event(&self, place: EventPlace) -> Result<bool> {
        if !self.may_be_stray(place.epoch) {
            return Ok(true);
        }
        let row = AppRow::Plog(self.partition, place.plog);
        let Some(there) = self.get(row).await? else { return Ok(false) };
        Ok(self.reader.entry(row, &there)?.place() == Some(place))
    }

    /// Returns whether the row of a violation still holds the foreign bytes.
    ///
    /// # Errors
    /// Fails with the errors of the storage.
    pub async fn is_unchanged(&self, violation: &Violation) -> Result<bool> {
        if violation.is_retryable {
            return Ok(false);
        }
        let deadline = self.reader.deadline();
        let found = self.storage().get_linearizable(&violation.row.key(), deadline).await?;
        Ok(found == violation.found)
    }
}
