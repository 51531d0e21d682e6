//! What all parts of a leadership share: until when it is valid, whether it is lost, and what works under it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use clock::{Clock, Instant};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{Lease, LockFile, Lost, Slot, meters};

/// A leadership from its first moment to the last.
#[derive(Debug)]
pub(crate) struct Term {
    pub(crate) slot: Slot,
    pub(crate) lease: Lease,
    /// The proof of this process for a quick comeback: it lasts as long as anything of the term.
    _lock: Option<Arc<LockFile>>,
    pub(crate) clock: Clock,
    /// Cancelled when it is lost, and when it is to end.
    pub(crate) over: CancellationToken,
    state: Mutex<State>,
    /// Woken when the last work ended.
    idle: Notify,
}

#[derive(Clone, Copy, Debug)]
struct State {
    valid_until: Instant,
    kill_at: Instant,
    lost: Option<Lost>,
    /// How many works there are.
    works: usize,
    /// A work ended without saying that all it wrote was answered.
    is_unproved: bool,
}

impl Term {
    pub(crate) fn new(
        slot: Slot,
        lease: Lease,
        lock: Option<Arc<LockFile>>,
        (valid_until, kill_at): (Instant, Instant),
        clock: Clock,
    ) -> Term {
        let state = State { valid_until, kill_at, lost: None, works: 0, is_unproved: false };
        Term {
            slot,
            lease,
            _lock: lock,
            clock,
            over: CancellationToken::new(),
            state: Mutex::new(state),
            idle: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // It is whole at every moment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is over stays over, even if its lease was prolonged at the last moment: somebody may have seen its end.
    pub(crate) fn extend(&self, valid_until: Instant, kill_at: Instant) {
        self.judged(|state| {
            if state.lost.is_none() {
                (state.valid_until, state.kill_at) = (valid_until, kill_at);
            }
        });
    }

    /// The first reason counts.
    pub(crate) fn lose(&self, why: Lost) {
        let is_first = self.judged(|state| {
            let is_first = state.lost.is_none();
            state.lost.get_or_insert(why);
            is_first
        });
        if is_first {
            self.tell(why);
        }
    }

    pub(crate) fn valid_until(&self) -> Instant {
        self.state().valid_until
    }

    /// Why it is over, if it is: by the clock, whoever notices it first.
    pub(crate) fn lost(&self) -> Option<Lost> {
        self.judged(|state| state.lost)
    }

    /// Whether something that takes up to `time` ends before the term does.
    pub(crate) fn has_time(&self, time: Duration) -> Result<(), Lost> {
        self.judged(|state| match state.lost {
            Some(why) => Err(why),
            None if self.clock.now() + time < state.valid_until => Ok(()),
            None => Err(Lost::Expired),
        })
    }

    /// How long what still works has to live; `None` if nothing works.
    pub(crate) fn killed_in(&self) -> Option<Duration> {
        let state = self.state();
        let left = state.kill_at.saturating_since(self.clock.now());
        (state.works > 0).then_some(left)
    }

    /// Nothing begins after the end.
    pub(crate) fn begin_work(&self) -> Result<(), Lost> {
        self.judged(|state| match state.lost {
            Some(why) => Err(why),
            None => {
                state.works += 1;
                Ok(())
            }
        })
    }

    /// Looks at the clock and then at the state, at one moment.
    fn judged<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let is_over = state.lost.is_none() && self.clock.now() >= state.valid_until;
        if is_over {
            state.lost = Some(Lost::Expired);
        }
        let seen = look(&mut state);
        drop(state);
        if is_over {
            self.tell(Lost::Expired);
        }
        seen
    }

    fn tell(&self, why: Lost) {
        self.over.cancel();
        meters::lost(self.slot, why);
        info!(slot = %self.slot, epoch = %self.lease.epoch, %why, "leads no more");
    }

    pub(crate) fn end_work(&self, is_proved: bool) {
        let mut state = self.state();
        state.works -= 1;
        state.is_unproved |= !is_proved;
        if state.works == 0 {
            self.idle.notify_waiters();
        }
    }

    /// Waits until nothing works any more; whether all that was written is answered.
    pub(crate) async fn idle(&self) -> bool {
        loop {
            let mut woken = std::pin::pin!(self.idle.notified());
            woken.as_mut().enable();
            let State { works, is_unproved, .. } = *self.state();
            if works == 0 {
                return !is_unproved;
            }
            woken.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use clock::ManualClock;

    use super::*;
    use crate::{Epoch, Incarnation};

    /// A renewal was answered in time, and the thread that took the answer stood still before it said so.
    #[test]
    fn what_somebody_saw_end_does_not_go_on() {
        let manual = ManualClock::new(1);
        let clock = manual.clock();
        let owner = ([10, 0, 0, 1], 1).into();
        let lease = Lease { owner, incarnation: Incarnation(1), epoch: Epoch(1) };
        let second = Duration::from_secs(1);
        let ends = |after: u32| (clock.now() + after * second, clock.now() + 2 * after * second);
        let term = Term::new(Slot::FIRST, lease, None, ends(1), clock.clone());
        assert_eq!(term.lost(), None);
        manual.advance(second);
        assert_eq!(term.lost(), Some(Lost::Expired));
        assert!(term.over.is_cancelled());
        let (valid_until, kill_at) = ends(5);
        term.extend(valid_until, kill_at);
        assert_eq!(term.lost(), Some(Lost::Expired));
        assert!(term.valid_until() <= clock.now());
    }
}
