//! What the owner of the numbers and the keeper share, and decide by. Each method is one look under one lock, so between two of them anything may have
//! happened.

#[cfg(not(test))]
use std::sync::Mutex;

use std::{
    ops::DerefMut,
    sync::{Arc, PoisonError},
};

use hashbrown::HashMap;
#[cfg(test)]
use shuttle::sync::Mutex;
use tokio::sync::Notify;

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

#[derive(Debug)]
pub(crate) struct Shared {
    max_unflushed: usize,
    state: Mutex<State>,
    /// There is something to do for the keeper.
    work: Notify,
    /// Something became possible for the owner.
    change: Notify,
}

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

#[derive(Debug)]
struct State {
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

impl Shared {
    pub(crate) fn new(max_unflushed: usize) -> Shared {
        let state = State {
            phase: Phase::New,
            is_closing: false,
            next: Offset::FIRST,
            stored: Offset::FIRST,
            pending: HashMap::new(),
            flushing: HashMap::new(),
            is_told: false,
            trouble: None,
        };
        Shared {
            max_unflushed,
            state: Mutex::new(state),
            work: Notify::new(),
            change: Notify::new(),
        }
    }

    fn state(&self) -> impl DerefMut<Target = State> {
        // It is whole at every moment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // For the owner.

    /// The offset of the next event and how many numbers wait, if a transaction may begin.
    pub(crate) fn admit(&self) -> Result<(Offset, usize), Busy> {
        let state = self.state();
        state.busy(self.max_unflushed)?;
        Ok((state.next, state.unflushed()))
    }

    /// Waits until it is worth asking again.
    pub(crate) async fn admits(&self) -> Result<(), Busy> {
        loop {
            match self.admit() {
                // A change between the question and this is noted until it is waited for.
                Err(Busy::Actualizing | Busy::Unflushed) => self.change.notified().await,
                Err(closed) => return Err(closed),
                Ok(_) => return Ok(()),
            }
        }
    }

    /// What is known of a workspace and not stored yet; 0 where nothing is.
    pub(crate) fn waiting(&self, ws: WsId, seqs: &[SeqId]) -> Numbers {
        let state = self.state();
        let number = |seq: &SeqId| {
            let key = NumberKey { ws, seq: *seq };
            let known = state.pending.get(&key).or_else(|| state.flushing.get(&key));
            known.copied().unwrap_or(0)
        };
        seqs.iter().map(number).collect()
    }

    /// Numbers become pending together with the offset that covers them.
    pub(crate) fn flush(&self, drawn: impl Iterator<Item = Last>, next: Offset) {
        if defect::has(Defect::OffsetFirst) {
            self.state().next = next;
        }
        let mut state = self.state();
        if state.phase != Phase::Ready {
            return;
        }
        let is_first = state.next == state.stored;
        state.pending.extend(drawn);
        state.next = next;
        let tell = is_first || state.is_urgent(self.max_unflushed);
        if tell && !state.is_told {
            state.is_told = true;
            drop(state);
            self.work.notify_one();
        }
    }

    /// Everything that is not stored is forgotten, and found again in the log.
    pub(crate) fn actualize(&self) {
        let mut state = self.state();
        if state.phase == Phase::Ready {
            state.phase = Phase::Actualizing;
            state.pending.clear();
        }
        drop(state);
        self.work.notify_one();
    }

    /// Lets the keeper store what waits, and end.
    pub(crate) fn close(&self) {
        self.state().is_closing = true;
        self.work.notify_one();
    }

    pub(crate) fn phase(&self) -> Phase {
        self.state().phase
    }

    pub(crate) fn unflushed(&self) -> usize {
        self.state().unflushed()
    }

    pub(crate) fn next_offset(&self) -> Option<Offset> {
        let state = self.state();
        (state.phase == Phase::Ready).then_some(state.next)
    }

    pub(crate) fn trouble(&self) -> Option<Arc<StorageError>> {
        self.state().trouble.clone()
    }

    // For the keeper.

    /// What is to be done next. Numbers that are to be stored are put into the buffer, and known as being stored until
    /// [`Shared::flushed`]. They wait for others until there are many, or have waited long enough.
    pub(crate) fn work(&self, have_waited: bool, buffer: &mut Vec<Last>) -> Work {
        let mut state = self.state();
        state.is_told = false;
        let is_now = have_waited || state.is_closing || state.is_urgent(self.max_unflushed);
        match state.phase {
            Phase::New | Phase::Actualizing if state.is_closing => Work::End,
            Phase::New | Phase::Actualizing => {
                state.phase = Phase::Actualizing;
                Work::Actualize
            }
            Phase::Ready if state.next != state.stored && !is_now => Work::Gather,
            Phase::Ready if state.next != state.stored => {
                let State { pending, flushing, .. } = &mut *state;
                std::mem::swap(pending, flushing);
                buffer.clear();
                buffer.extend(flushing.iter().map(|(key, number)| (*key, *number)));
                if defect::has(Defect::ForgottenWhileStored) {
                    flushing.clear();
                }
                Work::Flush(state.next)
            }
            Phase::Ready if state.is_closing => Work::End,
            Phase::Ready => Work::Wait,
            Phase::Closed => Work::End,
        }
    }

    pub(crate) async fn has_work(&self) {
        self.work.notified().await;
    }

    /// Waits until it is to be closed.
    pub(crate) async fn is_closing(&self) {
        while !self.state().is_closing {
            self.work.notified().await;
        }
    }

    /// All that was being stored is.
    pub(crate) fn flushed(&self, stored: Offset) {
        let mut state = self.state();
        state.flushing.clear();
        state.stored = stored;
        state.trouble = None;
        drop(state);
        self.change.notify_one();
    }

    /// Everything in the log is stored.
    pub(crate) fn actualized(&self, next: Offset) {
        let mut state = self.state();
        (state.next, state.stored) = (next, next);
        state.phase = Phase::Ready;
        state.trouble = None;
        drop(state);
        self.change.notify_one();
    }

    pub(crate) fn failed(&self, why: Arc<StorageError>) {
        self.state().trouble = Some(why);
    }

    pub(crate) fn closed(&self) {
        self.state().phase = Phase::Closed;
        self.change.notify_one();
    }
}

impl State {
    fn unflushed(&self) -> usize {
        self.pending.len() + self.flushing.len()
    }

    /// Whether half of what may wait does.
    fn is_urgent(&self, max_unflushed: usize) -> bool {
        2 * self.unflushed() >= max_unflushed || 2 * self.events() >= max_events(max_unflushed)
    }

    /// How many events there are behind the stored offset.
    fn events(&self) -> u64 {
        self.next.get() - self.stored.get()
    }

    fn busy(&self, max_unflushed: usize) -> Result<(), Busy> {
        let is_full =
            self.unflushed() >= max_unflushed || self.events() >= max_events(max_unflushed);
        match self.phase {
            Phase::New | Phase::Actualizing => Err(Busy::Actualizing),
            Phase::Closed => Err(Busy::Closed),
            Phase::Ready if self.is_closing => Err(Busy::Closed),
            Phase::Ready if is_full => Err(Busy::Unflushed),
            Phase::Ready => Ok(()),
        }
    }
}
