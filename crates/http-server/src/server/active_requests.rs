//! The requests of a connection that are under way.
//!
//! Invariant: a request is under way until the kernel has taken the last byte of its answer. The
//! pieces of the answer hold the request until then (`tracked_body.rs`).
//!
//! The time of a client runs only while pieces wait for the client. The time that the node needs to
//! read the next piece does not count.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use clock::{Clock, Instant};

/// The requests of a connection that are under way.
#[derive(Clone, Debug, Default)]
pub(super) struct ActiveRequests(Arc<Mutex<ActiveState>>);

#[derive(Debug, Default)]
struct ActiveState {
    requests: usize,
    /// The number of pieces of answers that wait for the client.
    pieces: usize,
    /// Since when pieces have waited.
    since: Option<Instant>,
    /// How long pieces of the last answer had waited before that.
    before: Duration,
    /// Whether the last answer has no end, so that each of its pieces has a time of its own.
    is_endless: bool,
    /// The body that waits until no piece waits for the client.
    waiting_body: Option<Waker>,
}

impl ActiveState {
    fn taken(&self, now: Instant) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| now - since)
    }
}

impl ActiveRequests {
    pub(super) fn begin(&self) -> ActiveRequest {
        self.state().requests += 1;
        ActiveRequest(self.clone())
    }

    pub(super) fn is_idle(&self) -> bool {
        self.state().requests == 0
    }

    /// Whether the node can do nothing for the connection before the client does something.
    pub(super) fn wait_for_client(&self) -> bool {
        let state = self.state();
        state.requests == 0 || state.pieces > 0
    }

    /// Returns when a client has taken `time` to receive an answer, or up to a quarter of `time`
    /// later. A timer for each request would cost more.
    pub(super) async fn overdue(&self, time: Duration, clock: &Clock) {
        loop {
            clock.sleep(time / 4).await;
            if self.taken(clock.now()) >= time {
                return;
            }
        }
    }

    /// The time that the client has taken to receive the last answer.
    pub(super) fn taken(&self, now: Instant) -> Duration {
        self.state().taken(now)
    }

    fn state(&self) -> MutexGuard<'_, ActiveState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that is under way until this value is dropped.
#[derive(Debug)]
pub(super) struct ActiveRequest(ActiveRequests);

impl ActiveRequest {
    /// Begins the answer. The time of the client begins anew.
    pub(super) fn begin_answer(&self, is_endless: bool, clock: &Clock) {
        let mut state = self.0.state();
        state.is_endless = is_endless;
        state.before = Duration::ZERO;
        state.since = state.since.map(|_| clock.now());
    }

    /// Waits until the kernel has taken all pieces of the answer so far.
    pub(super) fn poll_taken(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.state();
        if state.pieces == 0 {
            return Poll::Ready(());
        }
        state.waiting_body = Some(context.waker().clone());
        Poll::Pending
    }

    /// Notes that a piece of the answer waits for the client.
    fn add_piece(&self, now: Instant) {
        let mut state = self.0.state();
        state.pieces += 1;
        state.since.get_or_insert(now);
    }

    /// Notes that the kernel has taken a piece of the answer for the client.
    fn remove_piece(&self, now: Instant) {
        let mut state = self.0.state();
        state.pieces -= 1;
        let is_last = state.pieces == 0;
        if state.is_endless {
            (state.before, state.since) = (Duration::ZERO, (!is_last).then_some(now));
        } else if is_last {
            state.before = state.taken(now);
            state.since = None;
        }
        if is_last && let Some(body) = state.waiting_body.take() {
            body.wake();
        }
    }
}

/// A piece of an answer that waits for the client until this value is dropped.
#[derive(Debug)]
pub(super) struct WaitingPiece {
    begun: Arc<ActiveRequest>,
    clock: Clock,
}

impl WaitingPiece {
    pub(super) fn new(begun: Arc<ActiveRequest>, clock: Clock) -> WaitingPiece {
        begun.add_piece(clock.now());
        WaitingPiece { begun, clock }
    }
}

impl Drop for WaitingPiece {
    fn drop(&mut self) {
        self.begun.remove_piece(self.clock.now());
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.state().requests -= 1;
    }
}
