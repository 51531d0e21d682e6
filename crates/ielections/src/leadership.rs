//! The API of a leader: a leadership, its work guards, and the proof that all work has stopped.

use std::{sync::Arc, time::Duration};

use clock::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    Epoch, Incarnation, LossReason, Seat,
    renewal::{ReleaseOutcome, RenewalTask},
    term::Term,
};

/// The leadership of a seat. It is renewed in the background until it is lost, released or dropped.
///
/// Every piece of work under the leadership holds a [`WorkGuard`]. Only
/// [`StoppedLeadership::release`] deletes the lease before it expires. A [`StoppedLeadership`]
/// exists only when every piece of work has ended and has confirmed that all its writes were
/// answered:
///
/// ```compile_fail,E0599
/// async fn too_early(leadership: ielections::Leadership) {
///     leadership.release().await; // no such method: `stopped` comes first
/// }
/// ```
///
/// A dropped leadership is no longer renewed, and its lease expires.
#[derive(Debug)]
pub struct Leadership {
    term: Arc<Term>,
    renewals: RenewalTask,
}

impl Leadership {
    pub(crate) fn new(term: Arc<Term>, renewals: RenewalTask) -> Leadership {
        Leadership { term, renewals }
    }

    /// Returns the seat.
    pub fn seat(&self) -> Seat {
        self.term.seat
    }

    /// Returns the epoch, which is the fencing token of the leadership.
    pub fn epoch(&self) -> Epoch {
        self.term.lease.epoch
    }

    /// Returns the incarnation of the lease. No other leadership has it.
    pub fn incarnation(&self) -> Incarnation {
        self.term.lease.incarnation
    }

    /// Returns the end of the leadership if it is not renewed.
    pub fn valid_until(&self) -> Instant {
        self.term.valid_until()
    }

    /// Returns why the leadership is over; `None` while it lasts. The clock decides, so a process
    /// that stood still sees the end at once.
    pub fn lost(&self) -> Option<LossReason> {
        self.term.lost()
    }

    /// Waits until the leadership is over.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn over(&self) -> LossReason {
        loop {
            if let Some(why) = self.term.lost() {
                return why;
            }
            let end = self.term.valid_until();
            // After either event the loop checks again: the end may have moved.
            let _ = self.term.clock.timeout_at(end, self.term.token.cancelled()).await;
        }
    }

    /// Returns a token that is cancelled when the leadership is over, and when it is about to be
    /// [`stopped`](Leadership::stopped).
    ///
    /// A task cancels the token, and may be late. Work that must not continue a moment too long
    /// calls [`WorkGuard::may_send`] instead.
    pub fn token(&self) -> CancellationToken {
        self.term.token.child_token()
    }

    /// Begins a new piece of work under the leadership.
    ///
    /// # Errors
    /// Fails if the leadership is over, with the reason.
    pub fn work(&self) -> Result<WorkGuard, LossReason> {
        self.term.begin_work()?;
        Ok(WorkGuard { term: Arc::clone(&self.term), is_proved: false })
    }

    /// Tells all work to end, through the [`token`](Leadership::token), and waits until all work
    /// has ended with proof. Renewals continue meanwhile, so work can finish its writes.
    ///
    /// # Errors
    /// Fails with [`UnprovedStop`] if a piece of work ended without [`WorkGuard::finish`], or if
    /// the deadline passed first. Then nobody knows whether all writes have landed, and the lease
    /// is left to expire.
    ///
    /// # Cancel safety
    /// A dropped call drops the leadership: its lease expires.
    pub async fn stopped(self, deadline: Instant) -> Result<StoppedLeadership, UnprovedStop> {
        self.term.token.cancel();
        match self.term.clock.timeout_at(deadline, self.term.idle()).await {
            Ok(true) => Ok(StoppedLeadership(self)),
            _ => Err(UnprovedStop),
        }
    }
}

/// A work guard: a piece of work under a leadership, such as a task, or a connection that writes.
#[derive(Debug)]
pub struct WorkGuard {
    term: Arc<Term>,
    is_proved: bool,
}

impl WorkGuard {
    /// Returns the epoch of the leadership.
    pub fn epoch(&self) -> Epoch {
        self.term.lease.epoch
    }

    /// Returns the incarnation of the lease. No other leadership has it.
    pub fn incarnation(&self) -> Incarnation {
        self.term.lease.incarnation
    }

    /// Begins another piece of work under the same leadership.
    ///
    /// # Errors
    /// Fails if the leadership is over, with the reason.
    pub fn begin_another(&self) -> Result<WorkGuard, LossReason> {
        self.term.begin_work()?;
        Ok(WorkGuard { term: Arc::clone(&self.term), is_proved: false })
    }

    /// Returns the end of the leadership if it is not renewed.
    pub fn valid_until(&self) -> Instant {
        self.term.valid_until()
    }

    /// Checks whether a write with this `timeout` may be sent. Call `may_send(timeout)` right
    /// before a write. Call `may_send(Duration::ZERO)` before you report its success.
    ///
    /// # Errors
    /// Fails if the leadership is over, or would be over after `timeout`, with the reason.
    pub fn may_send(&self, timeout: Duration) -> Result<(), LossReason> {
        self.term.has_time(timeout)
    }

    /// Confirms that the work has ended, and that every write it sent was answered. A guard that is
    /// dropped instead proves nothing.
    pub fn finish(mut self) {
        self.is_proved = true;
    }
}

impl Drop for WorkGuard {
    fn drop(&mut self) {
        self.term.end_work(self.is_proved);
    }
}

/// The error if work has not ended, or has ended without proof that all its writes have landed. The
/// lease expires by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("some work has not stopped, or has unanswered writes, so the lease is left to expire")]
pub struct UnprovedStop;

/// The proof that all work of a leadership has ended and all its writes were answered.
#[derive(Debug)]
pub struct StoppedLeadership(Leadership);

impl StoppedLeadership {
    /// Releases the lease, so that another node can lead at once. If the store does not answer, the
    /// lease expires.
    ///
    /// # Cancel safety
    /// After a dropped call the lease is deleted or expires.
    pub async fn release(self) -> ReleaseOutcome {
        self.0.renewals.release().await
    }
}
