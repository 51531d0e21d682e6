//! The repair of a log, by an operator, under the leadership: a marker or the copy takes the place
//! of an event that cannot be read, a fencing entry is written again, or a foreign row is removed.

mod damage;
mod places;
mod search;

use bytes::Bytes;
use istorage::{AppStorageExt, Conditional, Outcome};

pub use self::{
    damage::{DamagedEvent, DamagedFencing, EventNeighbours},
    places::{PlaceCandidate, PlaceEvidence, SEARCHED_EVENTS},
};
use crate::{
    AppRow, DamagedRow, DrawnNumber, Entry, Error, EventPlace, LogWriter, Marker, Result,
    TrustLevel, Violation, apply::not_shown, calls::Calls, strays::Strays,
};

/// Repairs rows of a log. The leader of the partition writes them.
#[derive(Clone, Copy, Debug)]
pub struct LogRepair<'l> {
    log: &'l LogWriter,
    calls: &'l Calls,
    strays: &'l Strays,
}

impl<'l> LogRepair<'l> {
    /// Makes the repair of a log. This neither reads nor writes.
    pub fn new(log: &'l LogWriter) -> LogRepair<'l> {
        LogRepair { log, calls: &log.calls, strays: &log.strays }
    }

    /// Puts a marker in the place of exactly the bytes that were found.
    ///
    /// Invariant: the log of the workspace gets the marker first, unless its copy is whole. A
    /// simpler version marks the log of the partition first. Leader A marks that log and crashes;
    /// leader B replays the marker, meets the damaged copy in the log of the workspace, and (at
    /// trust levels 0 and 1) reports a violation. The event cannot be marked again, because the
    /// marker can be read. So the violation stays.
    ///
    /// If the row of the event has changed, the marker in the log of the workspace is taken back.
    /// If the second write fails in another way, that marker stays, and names the place and the
    /// numbers of the event when the event is marked again.
    ///
    /// The marker lies above every ordered write, so it stays at every trust level. At level 2 a
    /// marker in the log of the workspace is not taken back if it stands where no row was: the
    /// removed row would hide ordered writes.
    ///
    /// # Errors
    /// Fails with [`Error::Violation`] if the row holds other bytes now.
    pub async fn mark(&self, damaged: &DamagedEvent, drawn: Vec<DrawnNumber>) -> Result<Marker> {
        let (place, marked) = (damaged.place, self.calls.fence.epoch());
        let marker = Marker { place, marked, drawn, bytes: damaged.found.clone() };
        let bytes = Entry::Marker(marker.clone()).to_bytes();
        let EventPlace { ws, wlog, .. } = place;
        // A copy that is whole stays. A missing copy is written only if no copy is known: only a
        // leader that reads the log from this event on would write the copy.
        let needs_copy = damaged.wlog.is_some() || damaged.drawn.is_none();
        let beside = AppRow::Wlog(ws, wlog);
        if needs_copy {
            self.replace(beside, damaged.wlog.as_ref(), &bytes).await?;
        }
        let marking = self.replace(damaged.row, Some(&damaged.found), &bytes).await;
        if matches!(marking, Err(Error::Violation(_)))
            && needs_copy
            && (damaged.wlog.is_some() || self.calls.settings.level != TrustLevel::Two)
        {
            // If the row has changed again, the marker is gone already.
            self.swap(beside, Some(&bytes), damaged.wlog.as_ref()).await?;
        }
        marking.map(|()| marker)
    }

    /// Restores an event from its copy in the log of the workspace. Both have the same bytes.
    ///
    /// A simpler version marks every event that cannot be read. Leader A writes event 7 with a
    /// gapless number, and crashes before the counter record; event 7 is damaged, and marked;
    /// leader B draws the number again, and the log of the workspace has two events with it.
    ///
    /// # Errors
    /// Fails with [`Error::Violation`] if the row holds other bytes now, and with
    /// [`DamagedRow::Missing`] if there is no whole copy.
    pub async fn restore(&self, damaged: &DamagedEvent) -> Result<()> {
        match &damaged.copy {
            Some(copy) => self.replace(damaged.row, Some(&damaged.found), copy).await,
            None => Err(DamagedRow::Missing(damaged.row).into()),
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

    /// Replaces the bytes of a row, `found`, by a marker, by the event or by a fencing entry.
    async fn replace(&self, row: AppRow, found: Option<&Bytes>, marker: &Bytes) -> Result<()> {
        match self.swap(row, found, Some(marker)).await? {
            None => Ok(()),
            Some(there) => {
                let why = "changed after the marking began";
                Err(Violation::new(row, there.as_ref(), marker, why).into())
            }
        }
    }

    /// Replaces the bytes of a row by a conditional write; `None` stands for no row. If the row
    /// holds neither `found` nor `new`, returns what the row holds. The row is read afterwards,
    /// because the storage may keep a row with a time that is ahead.
    ///
    /// Invariant: after an attempt without an answer, no result claims that nothing was written.
    /// The first attempt gets no answer; the second attempt meets another row; an operator restores
    /// the row that was there before; the first attempt lands.
    async fn swap(
        &self,
        row: AppRow,
        found: Option<&Bytes>,
        new: Option<&Bytes>,
    ) -> Result<Option<Option<Bytes>>> {
        let key = row.key();
        let send = || {
            let (ccols, ttl) = (key.ccols.clone(), None);
            let op = match (found.cloned(), new.cloned()) {
                (Some(old), Some(new)) => Conditional::Swap { ccols, old, new, ttl },
                (Some(old), None) => Conditional::Delete { ccols, old },
                (None, new) => Conditional::Insert { ccols, value: new.unwrap_or_default(), ttl },
            };
            self.calls.storage().write_if(key.pkey.clone(), vec![op], self.calls.reader.deadline())
        };
        // An operator waits for the result, and can send the repair again.
        let until = self.calls.clock.now() + self.calls.settings.apply_for;
        let (outcome, unanswered) = self.calls.write_settled(Some(until), None, send).await?;
        let Outcome::NotApplied(mut conflicts) = outcome else {
            if self.calls.reads_back() {
                let deadline = self.calls.reader.deadline();
                let there = self.calls.storage().get_linearizable(&key, deadline).await;
                if there.map_err(Error::unknown)?.as_ref() != new {
                    return Err(Error::unknown(not_shown(row)));
                }
            }
            return Ok(None);
        };
        let there = conflicts.pop().and_then(|conflict| conflict.actual);
        if there.as_ref() == new {
            return Ok(None);
        }
        if unanswered.is_some() {
            let what = "an earlier attempt got no answer, and the row has changed";
            return Err(Error::unknown(what));
        }
        Ok(Some(there))
    }
}

/// Returns a short text that tells the bytes of a row apart from others: their number and their
/// CRC-32.
pub fn row_digest(bytes: &[u8]) -> String {
    format!("{}-{:08x}", bytes.len(), crc32fast::hash(bytes))
}
