//! The shared state of a leadership: its end, its loss, and its pieces of work.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use base::locks::lock;
use clock::{Clock, Instant};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{Lease, LockFile, LossReason, Seat, meters};

/// A leadership from its first moment to the last.
#[derive(Debug)]
pub(crate) struct Term {
    pub(crate) seat: Seat,
    pub(crate) lease: Lease,
    /// The lock file. It proves the end of this process for a quick comeback, so it is held while
    /// any part of the term exists.
    _lock: Option<Arc<LockFile>>,
    pub(crate) clock: Clock,
    /// Cancelled when the leadership is lost, and when it is about to be stopped.
    pub(crate) token: CancellationToken,
    state: Mutex<TermState>,
    /// Notified when the last piece of work ends.
    idle: Notify,
}

#[derive(Clone, Copy, Debug)]
struct TermState {
    valid_until: Instant,
    kill_at: Instant,
    lost: Option<LossReason>,
    /// The number of pieces of work.
    active_work: usize,
    /// Whether a piece of work ended without a confirmation that all its writes were answered.
    is_unproved: bool,
}

impl Term {
    pub(crate) fn new(
        seat: Seat,
        lease: Lease,
        lock: Option<Arc<LockFile>>,
        valid_until: Instant,
        kill_at: Instant,
        clock: Clock,
    ) -> Term {
        let state =
            TermState { valid_until, kill_at, lost: None, active_work: 0, is_unproved: false };
        Term {
            seat,
            lease,
            _lock: lock,
            clock,
            token: CancellationToken::new(),
            state: Mutex::new(state),
            idle: Notify::new(),
        }
    }

    /// Prolongs the leadership, unless it is already over.
    ///
    /// A leadership that is over stays over, even if its lease was prolonged at the last moment:
    /// some part of the node may have seen the end.
    pub(crate) fn extend(&self, valid_until: Instant, kill_at: Instant) {
        self.with_checked_state(|state| {
            if state.lost.is_none() {
                (state.valid_until, state.kill_at) = (valid_until, kill_at);
            }
        });
    }

    /// Ends the leadership. The first reason stays.
    ///
    /// Work that is told of a loss must stop within `stop_grace`, as it must after `valid_until`:
    /// another node may lead at once, for example if the lease was deleted. A leadership that this
    /// node gave up itself is not lost, and its lease lasts.
    pub(crate) fn lose(&self, why: LossReason) {
        let is_first = self.with_checked_state(|state| {
            let is_first = state.lost.is_none();
            if is_first && !matches!(why, LossReason::Released | LossReason::Dropped) {
                let stop_grace = state.kill_at.saturating_since(state.valid_until);
                state.kill_at = state.kill_at.min(self.clock.now() + stop_grace);
            }
            state.lost.get_or_insert(why);
            is_first
        });
        if is_first {
            self.announce_end(why);
        }
    }

    pub(crate) fn valid_until(&self) -> Instant {
        lock(&self.state).valid_until
    }

    /// Returns why the leadership is over. The clock decides at each call.
    pub(crate) fn lost(&self) -> Option<LossReason> {
        self.with_checked_state(|state| state.lost)
    }

    /// Checks whether an action of up to `time` ends before the leadership does.
    pub(crate) fn has_time(&self, time: Duration) -> Result<(), LossReason> {
        self.with_checked_state(|state| match state.lost {
            Some(why) => Err(why),
            None if self.clock.now() + time < state.valid_until => Ok(()),
            None => Err(LossReason::Expired),
        })
    }

    /// Returns the time until work that still runs is killed; `None` if no work runs.
    pub(crate) fn killed_in(&self) -> Option<Duration> {
        let state = lock(&self.state);
        let left = state.kill_at.saturating_since(self.clock.now());
        (state.active_work > 0).then_some(left)
    }

    /// Begins a piece of work. No work begins after the end of the leadership.
    pub(crate) fn begin_work(&self) -> Result<(), LossReason> {
        self.with_checked_state(|state| match state.lost {
            Some(why) => Err(why),
            None => {
                state.active_work += 1;
                Ok(())
            }
        })
    }

    /// Checks the clock and reads the state under one lock.
    fn with_checked_state<T>(&self, look: impl FnOnce(&mut TermState) -> T) -> T {
        let mut state = lock(&self.state);
        let is_over = state.lost.is_none() && self.clock.now() >= state.valid_until;
        if is_over {
            state.lost = Some(LossReason::Expired);
        }
        let seen = look(&mut state);
        drop(state);
        if is_over {
            self.announce_end(LossReason::Expired);
        }
        seen
    }

    fn announce_end(&self, why: LossReason) {
        self.token.cancel();
        meters::lost(self.seat, why);
        info!(seat = %self.seat, epoch = %self.lease.epoch, reason = %why, "leadership ended");
    }

    pub(crate) fn end_work(&self, is_proved: bool) {
        let mut state = lock(&self.state);
        state.active_work -= 1;
        state.is_unproved |= !is_proved;
        if state.active_work == 0 {
            self.idle.notify_waiters();
        }
    }

    /// Waits until no work runs. Returns whether all writes of the work were answered.
    pub(crate) async fn idle(&self) -> bool {
        loop {
            let mut woken = std::pin::pin!(self.idle.notified());
            woken.as_mut().enable();
            let TermState { active_work, is_unproved, .. } = *lock(&self.state);
            if active_work == 0 {
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

    const SECOND: Duration = Duration::from_secs(1);

    /// A term that is valid for two seconds, with a `stop_grace` of one.
    fn term(clock: Clock) -> Term {
        let owner = ([10, 0, 0, 1], 1).into();
        let lease = Lease { owner, incarnation: Incarnation(1), epoch: Epoch(1) };
        let now = clock.now();
        Term::new(Seat::FIRST, lease, None, now + 2 * SECOND, now + 3 * SECOND, clock)
    }

    #[test]
    fn the_killer_acts_one_grace_after_a_loss_and_never_later_than_without_a_notice() {
        use LossReason::{Broken, Dropped, Expired, Gone, Panicked, Taken, Unhealthy};
        // The moment of the notice, and the time from then to the kill, in half seconds.
        let losses = [Panicked, Unhealthy, Taken(None), Gone, Broken].map(|why| (why, 1, 2));
        let others = [
            // The process stood still, and the leadership was over before the notice.
            (Gone, 5, 1),
            (Expired, 5, 1),
            // The node gave up the leadership, and no other node leads before the lease ends.
            (Dropped, 1, 5),
        ];
        for (why, noticed, killed_in) in losses.into_iter().chain(others) {
            let manual = ManualClock::new(1);
            let term = term(manual.clock());
            term.begin_work().unwrap();
            manual.advance(noticed * SECOND / 2);
            term.lose(why);
            assert_eq!(term.killed_in(), Some(killed_in * SECOND / 2), "{why:?} at {noticed}");
        }
    }

    /// A renewal was answered in time. The thread that received the answer stood still, and another
    /// caller saw the end of the leadership. Then the thread recorded the renewal.
    #[test]
    fn a_leadership_that_was_seen_to_end_is_not_extended() {
        let manual = ManualClock::new(1);
        let clock = manual.clock();
        let term = term(clock.clone());
        assert_eq!(term.lost(), None);
        manual.advance(2 * SECOND);
        assert_eq!(term.lost(), Some(LossReason::Expired));
        assert!(term.token.is_cancelled());
        term.extend(clock.now() + 5 * SECOND, clock.now() + 10 * SECOND);
        assert_eq!(term.lost(), Some(LossReason::Expired));
        assert!(term.valid_until() <= clock.now());
    }
}
