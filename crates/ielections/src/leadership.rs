//! A leadership in the hands of whoever leads.

use std::{sync::Arc, time::Duration};

use clock::Instant;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::{Epoch, Lost, Slot, runtime::Renewals, term::Term};

/// The lead of a slot. It is renewed in the background until it is lost, released or dropped.
///
/// Everything that is done under it holds a [`Work`]. The lease is given away early only by [`Stopped::release`], and a [`Stopped`]
/// exists only when every work has ended and has said that all it wrote was answered:
///
/// ```compile_fail,E0599
/// async fn too_early(leadership: ielections::Leadership) {
///     leadership.release().await; // there is no such method: first it must be `stopped`
/// }
/// ```
///
/// A leadership that is dropped is not renewed any more, and its lease expires.
#[derive(Debug)]
pub struct Leadership {
    term: Arc<Term>,
    renewals: Renewals,
}

impl Leadership {
    pub(crate) fn new(term: Arc<Term>, renewals: Renewals) -> Leadership {
        Leadership { term, renewals }
    }

    /// The slot that is led.
    pub fn slot(&self) -> Slot {
        self.term.slot
    }

    /// The fencing token.
    pub fn epoch(&self) -> Epoch {
        self.term.lease.epoch
    }

    /// Until when it lasts if it is not renewed.
    pub fn valid_until(&self) -> Instant {
        self.term.valid_until()
    }

    /// Why it is over; `None` while it is not. Judged by the clock, so a process that stood still learns it at once.
    pub fn lost(&self) -> Option<Lost> {
        self.term.lost()
    }

    /// Waits until it is over.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn over(&self) -> Lost {
        loop {
            if let Some(why) = self.term.lost() {
                return why;
            }
            let end = self.term.valid_until();
            // Whichever comes first is looked at anew: the end may have moved.
            let _ = self.term.clock.timeout_at(end, self.term.over.cancelled()).await;
        }
    }

    /// Cancelled when it is over, and when it is about to be [`stopped`](Leadership::stopped). What must not go on a moment too long asks [`Work::may_send`] instead: a token is
    /// cancelled by a task, which may come late.
    pub fn token(&self) -> CancellationToken {
        self.term.over.child_token()
    }

    /// A new piece of work under it.
    ///
    /// # Errors
    /// Why it is over.
    pub fn work(&self) -> Result<Work, Lost> {
        self.term.begin_work()?;
        Ok(Work { term: Arc::clone(&self.term), is_proved: false })
    }

    /// Tells all work to end, by the [`token`](Leadership::token), waits until it has, and proves it. Renewals go on meanwhile, so
    /// work may still write what it has to.
    ///
    /// # Errors
    /// [`Unproved`] if a work ended without [`Work::finish`], or the deadline came first: then nobody knows that all
    /// writes have landed, and the lease is left to expire.
    ///
    /// # Cancel safety
    /// A dropped call drops the leadership: its lease expires.
    pub async fn stopped(self, deadline: Instant) -> Result<Stopped, Unproved> {
        self.term.over.cancel();
        match self.term.clock.timeout_at(deadline, self.term.idle()).await {
            Ok(true) => Ok(Stopped(self)),
            _ => Err(Unproved),
        }
    }
}

/// A piece of work under a leadership: a task, or a connection that writes.
#[derive(Debug)]
pub struct Work {
    term: Arc<Term>,
    is_proved: bool,
}

impl Work {
    /// The epoch under which it works.
    pub fn epoch(&self) -> Epoch {
        self.term.lease.epoch
    }

    /// Until when the lead lasts if it is not renewed.
    pub fn valid_until(&self) -> Instant {
        self.term.valid_until()
    }

    /// Whether a write may be sent that is given up after `timeout`. Ask right before it is sent, and again before its
    /// success is told to anybody.
    ///
    /// # Errors
    /// Why not: the leadership is over, or would be by then.
    pub fn may_send(&self, timeout: Duration) -> Result<(), Lost> {
        self.term.has_time(timeout)
    }

    /// It has ended, and every write that it sent was answered. A work that is dropped instead proves nothing.
    pub fn finish(mut self) {
        self.is_proved = true;
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.term.end_work(self.is_proved);
    }
}

/// Work ended, or did not, and nobody knows whether all it wrote has landed. The lease expires by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it is not proved that all work has stopped and is answered, so the lease is left to expire"
)]
pub struct Unproved;

/// The proof that all work of a leadership has ended and was answered.
#[derive(Debug)]
pub struct Stopped(Leadership);

impl Stopped {
    /// Gives the lease away, so that another node can lead at once. If the store does not answer, the lease expires.
    ///
    /// # Cancel safety
    /// A dropped call leaves the lease to be removed or to expire.
    pub async fn release(self) {
        let (done, released) = oneshot::channel();
        self.0.renewals.release(done).await;
        // An error means that the task has ended: there is nothing more to wait for.
        let _ = released.await;
    }
}
