//! The engine behind a lock, shared by the owner, the keeper and the monitors.
//!
//! Each call takes the lock once. Between two calls, other threads may have changed the engine.

#[cfg(not(test))]
use std::sync::Mutex;
use std::{iter, ops::DerefMut, sync::PoisonError};

#[cfg(test)]
use shuttle::sync::Mutex;
use tokio::sync::Notify;

use crate::{
    Offset, SequencerBusy,
    defect::{self, Defect},
    engine::{Engine, Last},
};

#[derive(Debug)]
pub(crate) struct Shared {
    engine: Mutex<Engine>,
    /// Notifies the keeper that there may be work.
    work: Notify,
    /// Notifies the owner that a call which was refused may succeed now.
    change: Notify,
}

impl Shared {
    pub(crate) fn new(max_unflushed: usize) -> Shared {
        let engine = Mutex::new(Engine::new(max_unflushed));
        Shared { engine, work: Notify::new(), change: Notify::new() }
    }

    /// Locks the engine, for one read, or for one change that needs no notification.
    pub(crate) fn engine(&self) -> impl DerefMut<Target = Engine> {
        // The engine is consistent at every moment, so a poisoned lock does no harm.
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // Calls of the owner.

    /// Waits until a transaction may begin.
    pub(crate) async fn until_admitted(&self) -> Result<(), SequencerBusy> {
        loop {
            let admitted = self.engine().admit();
            match admitted {
                // `Notify` keeps a notification that comes between the check and the wait, so the
                // wait then ends at once.
                Err(SequencerBusy::Actualizing | SequencerBusy::Unflushed) => {
                    until(&self.change).await
                }
                Err(closed) => return Err(closed),
                Ok(_) => return Ok(()),
            }
        }
    }

    pub(crate) fn flush(&self, drawn: impl Iterator<Item = Last>, next: Offset) {
        if defect::has(Defect::OffsetFirst) {
            self.engine().flush(iter::empty(), next);
        }
        let tell = self.engine().flush(drawn, next);
        if tell {
            self.work.notify_one();
        }
    }

    pub(crate) fn actualize(&self) {
        self.engine().actualize();
        self.work.notify_one();
    }

    /// Tells the keeper to store the unflushed numbers, and to end.
    pub(crate) fn close(&self) {
        self.engine().close();
        self.work.notify_one();
    }

    // Calls of the keeper.

    /// Waits for a notification that there may be work.
    pub(crate) async fn until_work(&self) {
        until(&self.work).await;
    }

    /// Waits until the sequencer is to be closed.
    pub(crate) async fn until_closing(&self) {
        loop {
            let is_closing = self.engine().is_closing();
            if is_closing {
                return;
            }
            until(&self.work).await;
        }
    }

    pub(crate) fn flushed(&self, stored: Offset) {
        self.engine().flushed(stored);
        self.change.notify_one();
    }

    pub(crate) fn actualized(&self, next: Offset) {
        self.engine().actualized(next);
        self.change.notify_one();
    }

    pub(crate) fn closed(&self) {
        self.engine().closed();
        self.change.notify_one();
    }
}

/// Waits for a notification.
///
/// The notification may come between the caller's check and the wait. In tests, the yield lets
/// other tasks run between the two.
async fn until(told: &Notify) {
    #[cfg(test)]
    shuttle::future::yield_now().await;
    told.notified().await;
}
