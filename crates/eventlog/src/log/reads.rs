//! The reads of a leader in its log.

use bytes::Bytes;
use futures::stream::BoxStream;
use istorage::Consistency;

use crate::{AppRow, Log, Offset, Result, TrustLevel, reader::LogRow};

impl Log {
    /// Returns the consistency of reads. Rows that are written conditionally are read linearizably,
    /// so that no event that was answered is missed.
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
}
