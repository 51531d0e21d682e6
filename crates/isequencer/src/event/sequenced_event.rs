//! An event that draws its numbers.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::{
    DrawError, NumberKey, Offset, SeqId, Transaction,
    standard::{CRECORD_ID, RECORD_ID, WLOG_OFFSET},
    transaction::JoinState,
};

/// An event that draws its numbers.
///
/// End the event with [`finish`](SequencedEvent::finish) if it is in the log and applied. If the
/// event is cancelled or dropped, the outcome of its write is unknown, and the keeper reads the log
/// again.
#[must_use = "an event ends by `finish` or `cancel`"]
#[derive(Debug)]
pub struct SequencedEvent<'s> {
    transaction: Transaction<'s>,
    joined: JoinState,
    plog_offset: Offset,
    wlog_offset: u64,
    _eventing: Eventing,
}

impl<'s> SequencedEvent<'s> {
    /// Makes the event of the command that has joined. `is_eventing` is true until the event ends.
    pub(super) fn new(
        mut transaction: Transaction<'s>,
        joined: JoinState,
        is_eventing: &Arc<AtomicBool>,
    ) -> Result<SequencedEvent<'s>, DrawError> {
        let wlog_offset = transaction.draw(joined, WLOG_OFFSET)?;
        let plog_offset = transaction.keep();
        let eventing = Eventing::new(is_eventing);
        Ok(SequencedEvent { transaction, joined, plog_offset, wlog_offset, _eventing: eventing })
    }

    /// Returns the offset of the event in the log of the partition.
    pub fn plog_offset(&self) -> Offset {
        self.plog_offset
    }

    /// Returns the offset of the event in the log of the workspace.
    pub fn wlog_offset(&self) -> u64 {
        self.wlog_offset
    }

    /// Draws an id for a record of a document of the workspace or of the operation.
    ///
    /// # Errors
    /// Fails if no id is left.
    pub fn next_record_id(&mut self) -> Result<u64, DrawError> {
        self.next(RECORD_ID)
    }

    /// Draws an id for a record of a collection.
    ///
    /// # Errors
    /// Fails if no id is left.
    pub fn next_crecord_id(&mut self) -> Result<u64, DrawError> {
        self.next(CRECORD_ID)
    }

    /// Draws the next number of a sequence of the application.
    ///
    /// # Errors
    /// Fails if the sequence is not declared, or if its ranges are used up.
    pub fn next(&mut self, seq: SeqId) -> Result<u64, DrawError> {
        let number = self.transaction.draw(self.joined, seq)?;
        self.transaction.keep_draws();
        Ok(number)
    }

    /// Returns the last number of each sequence that the event drew from. The event in the log must
    /// contain these numbers, so that they can be found.
    pub fn drawn(&self) -> impl Iterator<Item = (NumberKey, u64)> {
        self.transaction.drawn(self.joined)
    }

    /// Ends the event: it is in the log, and applied.
    pub fn finish(self) {
        self.transaction.flush();
    }

    /// Ends an event that was not written to the log, or whose write has an unknown outcome. No
    /// write of the event may still be under way.
    pub fn cancel(self) {
        self.transaction.actualize();
    }
}

/// Sets a flag for as long as an event is under way.
#[derive(Debug)]
struct Eventing(Arc<AtomicBool>);

impl Eventing {
    fn new(flag: &Arc<AtomicBool>) -> Eventing {
        flag.store(true, Ordering::Release);
        Eventing(Arc::clone(flag))
    }
}

impl Drop for Eventing {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
