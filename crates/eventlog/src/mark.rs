//! Marking: an operator puts a marker in the place of an event that cannot be read. The leader of
//! the partition writes the marker.

mod damaged_event;
mod neighbours;

use bytes::Bytes;
use istorage::{Conditional, Order, OrderedPut, Outcome};

pub use self::{damaged_event::DamagedEvent, neighbours::EventNeighbours};
use crate::{
    AppRow, DamagedRow, DrawnNumber, Entry, Error, EventPlace, Log, Marker, Offset, Result,
    TrustLevel, Violation,
};

impl Log {
    /// Puts a marker in the place of exactly the bytes that were found.
    ///
    /// Invariant: the log of the workspace gets the marker first, unless its copy is whole. A
    /// simpler version marks the log of the partition first. Leader A marks that log and crashes;
    /// leader B replays the marker, meets the damaged copy in the log of the workspace, and (at
    /// trust levels 0 and 1) reports a violation. The event cannot be marked again, because the
    /// marker can be read. So the violation stays.
    ///
    /// At level 2 the bytes are compared before the write. Between the comparison and the write
    /// only the lease protects the row.
    ///
    /// # Errors
    /// Fails with [`Error::Violation`] if the row holds other bytes now.
    pub async fn mark(&self, damaged: &DamagedEvent, drawn: Vec<DrawnNumber>) -> Result<Marker> {
        let (place, marked) = (damaged.place, self.epoch());
        let marker = Marker { place, marked, drawn, bytes: damaged.found.clone() };
        let bytes = Entry::Marker(marker.clone()).to_bytes();
        let EventPlace { plog, ws, wlog, .. } = place;
        match &damaged.wlog {
            Some(copy) => self.replace(AppRow::Wlog(ws, wlog), Some(copy), &bytes, plog).await?,
            // The copy is missing. Only a leader that reads the log from this event on would write
            // the copy.
            None if damaged.drawn.is_none() => {
                self.replace(AppRow::Wlog(ws, wlog), None, &bytes, plog).await?;
            }
            None => {}
        }
        self.replace(damaged.row, Some(&damaged.found), &bytes, plog).await?;
        Ok(marker)
    }

    /// Restores an event from its copy in the log of the workspace. Both have the same bytes.
    ///
    /// A simpler version marks every event that cannot be read. Leader A writes event 7 with a
    /// gapless number, and crashes before the counter record; event 7 is damaged, and marked; leader
    /// B draws the number again, and the log of the workspace has two events with it.
    ///
    /// # Errors
    /// Fails with [`Error::Violation`] if the row holds other bytes now, and with
    /// [`DamagedRow::Missing`] if there is no whole copy.
    pub async fn restore(&self, damaged: &DamagedEvent) -> Result<()> {
        match &damaged.copy {
            Some(copy) => {
                let plog = damaged.place.plog;
                self.replace(damaged.row, Some(&damaged.found), copy, plog).await
            }
            None => Err(DamagedRow::Missing(damaged.row).into()),
        }
    }

    /// Replaces the bytes of a row, `found`, by a marker or by the event.
    ///
    /// Invariant: `Ok` means that the row holds the new bytes. At level 2 a simpler version does not
    /// read the row again after the write. Leader A writes an event; A marks the event, with the
    /// same order; either of two writes of the same order may stay, and the event stays. So A would
    /// report a marker that does not exist.
    async fn replace(
        &self,
        row: AppRow,
        found: Option<&Bytes>,
        marker: &Bytes,
        plog: Offset,
    ) -> Result<()> {
        let (storage, key) = (self.reader.storage(), row.key());
        let why = "changed after the marking began";
        if self.settings.level == TrustLevel::Two {
            // Between this read and the write, only the lease protects the row.
            let there = self.get(row).await?;
            if there.is_some() && there.as_ref() != found && there.as_ref() != Some(marker) {
                return Err(violation(row, there, marker, why));
            }
            self.wait_to_send().await?;
            let order = Order::from_parts(self.epoch().0, plog.0)?;
            let put = OrderedPut { key, value: marker.clone(), order, ttl: None };
            storage.put_ordered(vec![put], self.reader.deadline()).await?;
            // Either of two writes of the same order may stay, and the event may have been written
            // under this same epoch.
            let there = self.get(row).await?;
            if there.as_ref() != Some(marker) {
                let why = "was written under this leadership or a later one, or by another program: mark it under the next leadership, or, on Cassandra, write the right bytes with a plain write";
                return Err(violation(row, there, marker, why));
            }
            return Ok(());
        }
        let send = || {
            let (ccols, value) = (key.ccols.clone(), marker.clone());
            let op = match found.cloned() {
                Some(old) => Conditional::Swap { ccols, old, new: value, ttl: None },
                None => Conditional::Insert { ccols, value, ttl: None },
            };
            storage.write_if(key.pkey.clone(), vec![op], self.reader.deadline())
        };
        let (outcome, _) = self.write_settled(send).await?;
        let Outcome::NotApplied(mut conflicts) = outcome else { return Ok(()) };
        let there = conflicts.pop().and_then(|conflict| conflict.actual);
        if there.as_ref() == Some(marker) {
            return Ok(());
        }
        Err(violation(row, there, marker, why))
    }
}

fn violation(row: AppRow, found: Option<Bytes>, marker: &Bytes, why: &'static str) -> Error {
    Violation { row, found, expected: marker.clone(), why, is_retryable: false }.into()
}
