//! The strays of trust level 2: rows of a former leader without an event in the log.
//!
//! At level 2 a leader that stands still may go on when it has lost its leadership. Its event loses
//! against that of the next leader, but other rows of the event may stay. No node writes such rows
//! at levels 0 and 1. When the level has changed to one of these, the rows are still there.

use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;
use istorage::FoundRow;

use crate::{
    AppRow, Epoch, Offset, Result, TrustLevel,
    calls::Calls,
    conflict,
    layout::NEIGHBOURS,
    plan::{RowWrite, WriteMode},
};

/// Tells the strays in the rows of a log from foreign rows.
#[derive(Clone, Debug)]
pub(crate) struct Strays {
    pub(crate) calls: Arc<Calls>,
}

impl Strays {
    /// Returns whether level 2 may have written rows of this log, so that some may be strays.
    pub(crate) fn level_2_wrote(&self) -> bool {
        self.may_be_stray(Epoch(0))
    }

    /// Returns whether level 2 may have written under an epoch. A row of such an epoch may be a
    /// stray.
    pub(crate) fn may_be_stray(&self, epoch: Epoch) -> bool {
        self.calls.settings.level == TrustLevel::Two || epoch < self.calls.settings.stray_before
    }

    /// Returns whether a row in the place of a write is a stray. Such a row may be replaced. Every
    /// other row that the write does not expect is a violation.
    pub(crate) async fn is_stray(&self, write: &RowWrite, found: &FoundRow) -> Result<bool> {
        let partitions = self.calls.reader.partitions();
        let Some(origin) = conflict::level_2_origin(write, found, partitions) else {
            return Ok(false);
        };
        if !self.may_be_stray(origin.version.epoch) {
            return Ok(false);
        }
        if origin.is_excluded_by(write) {
            return Ok(true);
        }
        let row = AppRow::Plog(self.calls.partition, origin.version.plog);
        let Some(bytes) = self.calls.get(row).await? else { return Ok(true) };
        let in_log = self.calls.reader.entry(row, &bytes)?.place();
        Ok(!in_log.is_some_and(|place| origin.is_at(place)))
    }

    /// Returns the condition under which a write replaces a stray; `None` if the row is no stray.
    /// `there` are the bytes that the storage reported.
    ///
    /// Invariant: the condition holds only for bytes that were judged. If the row has changed since
    /// the report, the write keeps its condition, and the next refusal is judged. A simpler version
    /// returns the condition for `there`. Another program has put foreign bytes; it changes them,
    /// so they are not judged; it puts the first bytes again. So the write would replace them.
    pub(crate) async fn condition_over_stray(
        &self,
        write: &RowWrite,
        there: &Bytes,
    ) -> Result<Option<WriteMode>> {
        if !self.level_2_wrote() {
            return Ok(None);
        }
        match self.calls.reader.found_row(write.row).await? {
            Some(found) if found.value == *there => {
                let is_stray = self.is_stray(write, &found).await?;
                Ok(is_stray.then(|| WriteMode::Conditional(Some(found.value))))
            }
            _ => Ok(Some(write.mode.clone())),
        }
    }

    /// Returns the epoch below which an event is a stray: at most the epoch of the event before it,
    /// because the epochs of a log never fall.
    pub(crate) fn bound_behind(&self, in_front: Epoch) -> Epoch {
        match self.calls.settings.level {
            TrustLevel::Zero | TrustLevel::One => in_front.min(self.calls.settings.stray_before),
            TrustLevel::Two => in_front,
        }
    }

    /// Returns whether an event after an event of a later epoch is a stray. A stray was put, so at
    /// the other levels a row that hides ordered writes is damage.
    pub(crate) async fn is_stray_event(&self, row: AppRow, epoch: Epoch) -> Result<bool> {
        if !self.may_be_stray(epoch) {
            return Ok(false);
        }
        if self.calls.settings.level == TrustLevel::Two {
            return Ok(true);
        }
        let found = self.calls.reader.found_row(row).await?;
        Ok(found.is_none_or(|found| !found.hides_ordered))
    }

    /// Returns whether an event is past the end of the log, in this storage partition or in the
    /// next one. Strays of level 2 do not count. `epoch` is the epoch of the last event.
    pub(crate) async fn has_event_beyond(&self, end: Offset, epoch: Epoch) -> Result<bool> {
        let next_storage_partition = Offset((end.0 / NEIGHBOURS + 1) * NEIGHBOURS);
        for from in [end.next(), next_storage_partition] {
            let mut rows = self.calls.log_rows(from);
            while let Some((offset, bytes)) = rows.try_next().await? {
                let row = AppRow::Plog(self.calls.partition, offset);
                let is_stray = match self.calls.reader.entry(row, &bytes).map(|entry| entry.epoch())
                {
                    Ok(of_row) => of_row < epoch && self.may_be_stray(of_row),
                    Err(error) if self.calls.settings.level == TrustLevel::Two => {
                        return Err(error);
                    }
                    Err(_) => false,
                };
                if !is_stray {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}
