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
    defect::{self, SequencerDefect},
    engine::{KeyedNumber, SequencerEngine},
};

#[derive(Debug)]
pub(crate) struct SharedEngine {
    engine: Mutex<SequencerEngine>,
    /// Notifies the keeper that there may be work.
    work: Notify,
    /// Notifies the owner that a call which was refused may succeed now.
    change: Notify,
}

impl SharedEngine {
    pub(crate) fn new(max_unflushed: usize) -> SharedEngine {
        let engine = Mutex::new(SequencerEngine::new(max_unflushed));
        SharedEngine { engine, work: Notify::new(), change: Notify::new() }
    }

    /// Locks the engine, for one read, or for one change that needs no notification.
    pub(crate) fn engine(&self) -> impl DerefMut<Target = SequencerEngine> {
        // The engine is consistent at every moment, so a poisoned lock does no harm.
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // Calls of the owner.

    /// Waits until a transaction may begin.
    pub(crate) async fn wait_until_admitted(&self) -> Result<(), SequencerBusy> {
        loop {
            let admitted = self.engine().admit();
            match admitted {
                // `Notify` keeps a notification that comes between the check and the wait, so the
                // wait then ends at once.
                Err(SequencerBusy::Actualizing | SequencerBusy::Unflushed) => {
                    wait_for(&self.change).await
                }
                Err(closed) => return Err(closed),
                Ok(_) => return Ok(()),
            }
        }
    }

    pub(crate) fn flush(&self, drawn: impl Iterator<Item = KeyedNumber>, next: Offset) {
        if defect::is_put_back(SequencerDefect::OffsetBeforeNumbers) {
            self.engine().flush(iter::empty(), next);
        }
        let must_notify = self.engine().flush(drawn, next);
        if must_notify {
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
    pub(crate) async fn wait_for_work(&self) {
        wait_for(&self.work).await;
    }

    /// Waits until the sequencer is to be closed.
    pub(crate) async fn wait_for_closing(&self) {
        loop {
            let is_closing = self.engine().is_closing();
            if is_closing {
                return;
            }
            wait_for(&self.work).await;
        }
    }

    pub(crate) fn record_flushed(&self, stored: Offset) {
        self.engine().record_flushed(stored);
        self.change.notify_one();
    }

    pub(crate) fn record_actualized(&self, next: Offset) {
        self.engine().record_actualized(next);
        self.change.notify_one();
    }

    pub(crate) fn record_closed(&self) {
        self.engine().record_closed();
        self.change.notify_one();
    }
}

/// Waits for a notification.
///
/// The notification may come between the caller's check and the wait. In tests, the yield lets
/// other tasks run between the two.
async fn wait_for(notify: &Notify) {
    #[cfg(test)]
    shuttle::future::yield_now().await;
    notify.notified().await;
}
