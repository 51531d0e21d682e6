//! The rows of a log in their order, and the end of the log.

use bytes::Bytes;
use futures::{TryStreamExt, stream::BoxStream};

use crate::{
    AppRow, DamagedRow, Epoch, Offset, Result, TrustLevel, calls::Calls, layout::NEIGHBOURS,
    reader::LogRow, strays::Strays,
};

/// The rows of a log, read one after another.
pub(super) struct PlogRows<'l> {
    calls: &'l Calls,
    strays: &'l Strays,
    rows: Option<BoxStream<'static, Result<LogRow>>>,
}

impl<'l> PlogRows<'l> {
    pub(super) fn new(calls: &'l Calls, strays: &'l Strays) -> PlogRows<'l> {
        PlogRows { calls, strays, rows: None }
    }

    /// Returns the bytes of the next row. `epoch` is the epoch of the event in front.
    ///
    /// Invariant: `None` means that the log ends in front of this offset, and
    /// [`DamagedRow::Missing`] means that an event is behind a gap. A simpler version trusts the
    /// rows that were read together. The read passes the empty offset 5; a late write of an earlier
    /// leader puts the events 5 and 6 into the log; the read returns event 6. So the version would
    /// report that event 5 is missing, although the log is whole.
    pub(super) async fn at(&mut self, next: Offset, epoch: Epoch) -> Result<Option<Bytes>> {
        match self.read_on(next).await? {
            Some((offset, bytes)) if offset == next => return Ok(Some(bytes)),
            _ => {}
        }
        // The event may have landed after its neighbours were read, or while the events behind it
        // were read. So its row is read again before it counts as missing.
        let row = AppRow::Plog(self.calls.partition, next);
        let mut late = self.calls.get(row).await?;
        if late.is_none() && has_event_beyond(self.calls, self.strays, next, epoch).await? {
            late = Some(self.calls.get(row).await?.ok_or(DamagedRow::Missing(row))?);
        }
        if late.is_some() {
            // The rows behind a row that was missing are read again.
            self.rows = None;
        }
        Ok(late)
    }

    async fn read_on(&mut self, from: Offset) -> Result<Option<LogRow>> {
        let calls = self.calls;
        let rows = self.rows.get_or_insert_with(|| calls.log_rows(from));
        rows.try_next().await
    }
}

/// Returns whether an event is behind the end of the log, in this storage partition or in the next
/// one. Strays of level 2 do not count. `epoch` is the epoch of the last event.
pub(crate) async fn has_event_beyond(
    calls: &Calls,
    strays: &Strays,
    end: Offset,
    epoch: Epoch,
) -> Result<bool> {
    let next_storage_partition = Offset((end.0 / NEIGHBOURS + 1) * NEIGHBOURS);
    for from in [end.next(), next_storage_partition] {
        let mut rows = calls.log_rows(from);
        while let Some((offset, bytes)) = rows.try_next().await? {
            let row = AppRow::Plog(calls.partition, offset);
            let is_stray = match calls.reader.entry(row, &bytes).map(|entry| entry.epoch()) {
                Ok(of_row) => of_row < epoch && strays.may_be_stray(of_row),
                Err(error) if calls.settings.level == TrustLevel::Two => return Err(error),
                Err(_) => false,
            };
            if !is_stray {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
