//! What waits to be stored, and what is to be done next: every decision, without I/O, clock, lock or task.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::{
    Busy, NumberKey, Offset, SeqId, StorageError, WsId,
    cache::Numbers,
    defect::{self, Defect},
};

/// How many events may wait for their offset to be stored: they make the next start longer, though all of them may draw the same few
/// numbers.
pub(crate) fn max_events(max_unflushed: usize) -> u64 {
    20_u64.saturating_mul(max_unflushed as u64)
}

/// The last number of a sequence.
pub(crate) type Last = (NumberKey, u64);

/// What a sequencer is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its keeper has not begun.
    New,
    /// It reads the log.
    Actualizing,
    /// Numbers can be drawn.
    Ready,
    /// It has ended.
    Closed,
}

/// What the keeper has to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Actualize,
    /// The numbers are in the buffer.
    Flush(Offset),
    /// Wait for more numbers, but not for long.
    Gather,
    Wait,
    End,
}

/// What is not stored yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unflushed {
    /// Numbers; one that is being stored and was drawn again meanwhile counts twice.
    pub numbers: usize,
    /// Events behind the stored offset.
    pub events: u64,
}

#[derive(Debug)]
pub(crate) struct Engine {
    max_unflushed: usize,
    phase: Phase,
    is_closing: bool,
    /// Of the next event, without those of an open transaction.
    next: Offset,
    /// What the storage has.
    stored: Offset,
    /// Numbers to be stored together with `next`.
    pending: HashMap<NumberKey, u64>,
    /// Numbers that are being stored.
    flushing: HashMap<NumberKey, u64>,
    /// The keeper has been told of what waits, and has not looked since.
    is_told: bool,
    trouble: Option<Arc<StorageError>>,
}

impl Engine {
    pub(crate) fn new(max_unflushed: usize) -> Engine {
        Engine {
            max_unflushed,
            phase: Phase::New,
            is_closing: false,
            next: Offset::FIRST,
            stored: Offset::FIRST,
            pending: HashMap::new(),
            flushing: HashMap::new(),
            is_told: false,
            trouble: None,
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    pub(crate) fn unflushed(&self) -> Unflushed {
        let numbers = self.pending.len() + self.flushing.len();
        let events = match self.phase {
            Phase::New | Phase::Actualizing => 0,
            Phase::Ready | Phase::Closed => self.next.get() - self.stored.get(),
        };
        Unflushed { numbers, events }
    }

    pub(crate) fn next_offset(&self) -> Option<Offset> {
        (self.phase == Phase::Ready).then_some(self.next)
    }

    pub(crate) fn trouble(&self) -> Option<Arc<StorageError>> {
        self.trouble.clone()
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing
    }

    // For the owner.

    /// The offset of the next event and how many numbers wait, if a transaction may begin.
    pub(crate) fn admit(&self) -> Result<(Offset, usize), Busy> {
        let Unflushed { numbers, events } = self.unflushed();
        let is_full = numbers >= self.max_unflushed || events >= max_events(self.max_unflushed);
        match self.phase {
            Phase::New | Phase::Actualizing => Err(Busy::Actualizing),
            Phase::Closed => Err(Busy::Closed),
            Phase::Ready if is_full => Err(Busy::Unflushed),
            Phase::Ready => Ok((self.next, numbers)),
        }
    }

    /// What is known of a workspace and not stored yet; 0 where nothing is.
    pub(crate) fn waiting(&self, ws: WsId, seqs: &[SeqId]) -> Numbers {
        let number = |seq: &SeqId| {
            let key = NumberKey { ws, seq: *seq };
            let known = self.pending.get(&key).or_else(|| self.flushing.get(&key));
            known.copied().unwrap_or(0)
        };
        seqs.iter().map(number).collect()
    }

    /// Numbers become pending together with the offset that covers them. Whether the keeper must be told.
    pub(crate) fn flush(&mut self, drawn: impl Iterator<Item = Last>, next: Offset) -> bool {
        if self.phase != Phase::Ready {
            return false;
        }
        let is_first = self.next == self.stored;
        self.pending.extend(drawn);
        self.next = next;
        let tell = !self.is_told && (is_first || self.is_urgent());
        self.is_told |= tell;
        tell
    }

    /// Everything that is not stored is forgotten, and found again in the log.
    pub(crate) fn actualize(&mut self) {
        if self.phase == Phase::Ready {
            self.phase = Phase::Actualizing;
            self.pending.clear();
        }
    }

    pub(crate) fn close(&mut self) {
        self.is_closing = true;
    }

    // For the keeper.

    /// What is to be done next. Numbers that are to be stored are put into the buffer, and known as being stored until
    /// [`Engine::flushed`]. They wait for others until there are many, or have waited long enough.
    pub(crate) fn take_work(&mut self, have_waited: bool, buffer: &mut Vec<Last>) -> Work {
        self.is_told = false;
        let is_now = have_waited || self.is_closing || self.is_urgent();
        match self.phase {
            Phase::New | Phase::Actualizing if self.is_closing => Work::End,
            Phase::New | Phase::Actualizing => {
                self.phase = Phase::Actualizing;
                Work::Actualize
            }
            Phase::Ready if self.next != self.stored && !is_now => Work::Gather,
            Phase::Ready if self.next != self.stored => {
                std::mem::swap(&mut self.pending, &mut self.flushing);
                buffer.clear();
                buffer.extend(self.flushing.iter().map(|(key, number)| (*key, *number)));
                if defect::has(Defect::ForgottenWhileStored) {
                    self.flushing.clear();
                }
                Work::Flush(self.next)
            }
            Phase::Ready if self.is_closing => Work::End,
            Phase::Ready => Work::Wait,
            Phase::Closed => Work::End,
        }
    }

    /// All that was being stored is.
    pub(crate) fn flushed(&mut self, stored: Offset) {
        self.flushing.clear();
        self.stored = stored;
        self.trouble = None;
    }

    /// Everything in the log is stored.
    pub(crate) fn actualized(&mut self, next: Offset) {
        (self.next, self.stored) = (next, next);
        self.phase = Phase::Ready;
        self.trouble = None;
    }

    pub(crate) fn failed(&mut self, why: Arc<StorageError>) {
        self.trouble = Some(why);
    }

    pub(crate) fn closed(&mut self) {
        // What was not read cannot wait.
        if self.phase != Phase::Ready {
            self.next = self.stored;
        }
        self.phase = Phase::Closed;
    }

    /// Whether half of what may wait does.
    fn is_urgent(&self) -> bool {
        let Unflushed { numbers, events } = self.unflushed();
        2 * numbers >= self.max_unflushed || 2 * events >= max_events(self.max_unflushed)
    }
}
