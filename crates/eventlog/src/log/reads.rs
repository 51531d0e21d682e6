//! The reads of a leader in its log.

use bytes::Bytes;
use futures::stream::BoxStream;
use istorage::{AppStorageExt, Consistency};

use crate::{AppRow, EventPlace, Log, Offset, Result, TrustLevel, Violation, reader::LogRow};

impl Log {
    /// Returns the consistency of reads. Rows that are written conditionally are read linearizably,
    /// so that no acknowledged event is missed.
    fn consistency(&self) -> Consistency {
        match self.settings.level {
            TrustLevel::Zero | TrustLevel::One => Consistency::Linearizable,
            TrustLevel::Two => Consistency::Plain,
        }
    }

    pub(crate) async fn get(&self, row: AppRow) -> Result<Option<Bytes>> {
        let deadline = self.reader.deadline();
        Ok(self.reader.storage().get(&row.key(), self.consistency(), deadline).await?)
    }

    pub(crate) fn log_rows(&self, from: Offset) -> BoxStream<'static, Result<LogRow>> {
        let partition = self.partition;
        self.reader.log_rows(
            move |offset| AppRow::Plog(partition, offset),
            from,
            self.consistency(),
        )
    }

    /// Returns whether an event is in the log, for a caller that has found another row of the
    /// event. Where the log is written conditionally, such an event is in the log. At level 2
    /// another event may have replaced it.
    ///
    /// # Errors
    /// Fails with the errors of the storage. Also fails if the event cannot be read, because it is
    /// then not known whether the event is this one.
    pub async fn has_event(&self, place: EventPlace) -> Result<bool> {
        if self.settings.level != TrustLevel::Two {
            return Ok(true);
        }
        let row = AppRow::Plog(self.partition, place.plog);
        let Some(there) = self.get(row).await? else { return Ok(false) };
        Ok(self.reader.entry(row, &there)?.place() == place)
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
