//! The decisions of a sequencer: the numbers that wait to be stored, and the next task of the
//! keeper.
//!
//! The module does no I/O, and has no clock, lock or task.
//!
//! Invariant: numbers and the offset that covers them become unflushed in one step, and stay
//! unflushed until their write was acknowledged or the log is read again.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::{
    NumberKey, Offset, SeqId, SequencerBusy, StorageError, WsId,
    cache::WorkspaceNumbers,
    defect::{self, SequencerDefect},
};

/// Returns the limit of the events that wait for their offset to be stored.
///
/// The limit of numbers does not bound the events, because all events may draw from the same few
/// sequences. Each event that waits makes the next start longer.
pub(crate) fn max_events(max_unflushed: usize) -> u64 {
    20_u64.saturating_mul(max_unflushed as u64)
}

/// The last number of a sequence.
pub(crate) type KeyedNumber = (NumberKey, u64);

/// The state of a sequencer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The keeper has not begun.
    New,
    /// The keeper reads the log.
    Actualizing,
    /// Numbers can be drawn.
    Ready,
    /// The sequencer has ended.
    Closed,
}

/// The next task of the keeper.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum KeeperTask {
    Actualize,
    /// Store the numbers in the buffer, then this offset.
    Flush(Offset),
    /// Wait for more numbers, for at most the flush delay.
    Gather,
    Wait,
    End,
}

/// The numbers and events that are not stored yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unflushed {
    /// The number of unflushed numbers. A number counts twice if it was drawn again while it was
    /// being stored.
    pub numbers: usize,
    /// The number of events between the stored offset and the end of the log.
    pub events: u64,
}

#[derive(Debug)]
pub(crate) struct SequencerEngine {
    max_unflushed: usize,
    phase: Phase,
    is_closing: bool,
    /// The offset of the next event. Events of an open transaction are not counted.
    next: Offset,
    /// The offset that the storage has.
    stored: Offset,
    /// The numbers to be stored together with `next`.
    pending: HashMap<NumberKey, u64>,
    /// The numbers that are being stored.
    flushing: HashMap<NumberKey, u64>,
    /// The numbers that were pending when the keeper had to read the log again. The keeper finds
    /// them in the log and stores them. Until then, lookups find them here.
    actualizing: HashMap<NumberKey, u64>,
    /// Whether the keeper was notified of waiting numbers and has not asked for work since.
    is_notified: bool,
    last_error: Option<Arc<StorageError>>,
}

impl SequencerEngine {
    pub(crate) fn new(max_unflushed: usize) -> SequencerEngine {
        SequencerEngine {
            max_unflushed,
            phase: Phase::New,
            is_closing: false,
            next: Offset::FIRST,
            stored: Offset::FIRST,
            pending: HashMap::new(),
            flushing: HashMap::new(),
            actualizing: HashMap::new(),
            is_notified: false,
            last_error: None,
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    pub(crate) fn unflushed(&self) -> Unflushed {
        let numbers = self.pending.len() + self.flushing.len();
        let events = match self.phase {
            Phase::New | Phase::Actualizing => 0,
            Phase::Ready | Phase::Closed => self.next.0 - self.stored.0,
        };
        Unflushed { numbers, events }
    }

    pub(crate) fn next_offset(&self) -> Option<Offset> {
        (self.phase == Phase::Ready).then_some(self.next)
    }

    pub(crate) fn last_error(&self) -> Option<Arc<StorageError>> {
        self.last_error.clone()
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing
    }

    // Calls of the owner.

    /// Returns the offset of the next event and the count of unflushed numbers, if a transaction
    /// may begin.
    pub(crate) fn admit(&self) -> Result<(Offset, usize), SequencerBusy> {
        let Unflushed { numbers, events } = self.unflushed();
        let is_full = numbers >= self.max_unflushed || events >= max_events(self.max_unflushed);
        match self.phase {
            Phase::New | Phase::Actualizing => Err(SequencerBusy::Actualizing),
            Phase::Closed => Err(SequencerBusy::Closed),
            Phase::Ready if is_full => Err(SequencerBusy::Unflushed),
            Phase::Ready => Ok((self.next, numbers)),
        }
    }

    /// Returns the unflushed numbers of a workspace, in the order of `seqs`; 0 for a sequence
    /// without an unflushed number.
    pub(crate) fn unflushed_numbers(&self, ws: WsId, seqs: &[SeqId]) -> WorkspaceNumbers {
        let number = |seq: &SeqId| {
            let key = NumberKey { ws, seq: *seq };
            let later = self.pending.get(&key).or_else(|| self.actualizing.get(&key));
            let known = later.or_else(|| self.flushing.get(&key));
            known.copied().unwrap_or(0)
        };
        seqs.iter().map(number).collect()
    }

    /// Makes numbers and the offset that covers them unflushed, in one step. Returns whether the
    /// keeper must be notified.
    ///
    /// A simpler version raises the offset first. The owner raises the offset to that after event
    /// 5; the keeper stores that offset without the numbers; the node crashes; the next start reads
    /// the log from that offset. So the numbers of event 5 would be given twice.
    pub(crate) fn flush(&mut self, drawn: impl Iterator<Item = KeyedNumber>, next: Offset) -> bool {
        if self.phase != Phase::Ready {
            return false;
        }
        let is_first = self.next == self.stored;
        self.pending.extend(drawn);
        self.next = next;
        let must_notify = !self.is_notified && (is_first || self.is_urgent());
        self.is_notified |= must_notify;
        must_notify
    }

    /// Makes the keeper read the log again, and find the pending numbers there. Until then, lookups
    /// find these numbers here.
    ///
    /// A simpler version forgets the pending numbers at once. Event 3 is acknowledged, and its
    /// number is pending; the write of a later group fails; the storage loses event 3; a reader
    /// asks for the last number, and gets 2. So the reader takes the lost event for the end of the
    /// log.
    pub(crate) fn actualize(&mut self) {
        if self.phase == Phase::Ready {
            self.phase = Phase::Actualizing;
            self.actualizing = std::mem::take(&mut self.pending);
        }
    }

    pub(crate) fn close(&mut self) {
        self.is_closing = true;
    }

    // Calls of the keeper.

    /// Returns the next task of the keeper.
    ///
    /// The numbers to be stored are put into the buffer, and stay unflushed until
    /// [`SequencerEngine::record_flushed`] is called. Otherwise a lookup during the write might
    /// find them neither here nor in the storage, and they would be given twice.
    ///
    /// Pending numbers are stored when there are many, or when the flush delay has passed
    /// (`have_waited`).
    pub(crate) fn next_task(
        &mut self,
        have_waited: bool,
        buffer: &mut Vec<KeyedNumber>,
    ) -> KeeperTask {
        self.is_notified = false;
        let is_now = have_waited || self.is_closing || self.is_urgent();
        match self.phase {
            Phase::New | Phase::Actualizing if self.is_closing => KeeperTask::End,
            Phase::New | Phase::Actualizing => {
                self.phase = Phase::Actualizing;
                KeeperTask::Actualize
            }
            Phase::Ready if self.next != self.stored && !is_now => KeeperTask::Gather,
            Phase::Ready if self.next != self.stored => {
                std::mem::swap(&mut self.pending, &mut self.flushing);
                buffer.clear();
                buffer.extend(self.flushing.iter().map(|(key, number)| (*key, *number)));
                if defect::is_put_back(SequencerDefect::ForgottenDuringFlush) {
                    self.flushing.clear();
                }
                KeeperTask::Flush(self.next)
            }
            Phase::Ready if self.is_closing => KeeperTask::End,
            Phase::Ready => KeeperTask::Wait,
            Phase::Closed => KeeperTask::End,
        }
    }

    /// Records that all numbers that were being stored are stored.
    pub(crate) fn record_flushed(&mut self, stored: Offset) {
        self.flushing.clear();
        self.stored = stored;
        self.last_error = None;
    }

    /// Records that the numbers of all events in the log are stored.
    pub(crate) fn record_actualized(&mut self, next: Offset) {
        (self.next, self.stored) = (next, next);
        self.actualizing.clear();
        self.phase = Phase::Ready;
        self.last_error = None;
    }

    pub(crate) fn record_failure(&mut self, why: Arc<StorageError>) {
        self.last_error = Some(why);
    }

    pub(crate) fn record_closed(&mut self) {
        // Before the log is read to its end, no event waits for its offset to be stored.
        if self.phase != Phase::Ready {
            self.next = self.stored;
        }
        self.phase = Phase::Closed;
    }

    /// Returns whether the numbers or the events that wait have reached half of their limit.
    fn is_urgent(&self) -> bool {
        let Unflushed { numbers, events } = self.unflushed();
        2 * numbers >= self.max_unflushed || 2 * events >= max_events(self.max_unflushed)
    }
}
