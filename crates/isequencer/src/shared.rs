//! The engine, where owner, keeper and onlookers reach it: each call is one look under one lock, so between two of them anything may have happened.

#[cfg(not(test))]
use std::sync::Mutex;
use std::{iter, ops::DerefMut, sync::PoisonError};

#[cfg(test)]
use shuttle::sync::Mutex;
use tokio::sync::Notify;

use crate::{
    Busy, Offset,
    defect::{self, Defect},
    engine::{Engine, Last},
};

#[derive(Debug)]
pub(crate) struct Shared {
    engine: Mutex<Engine>,
    /// There is something to do for the keeper.
    work: Notify,
    /// Something became possible for the owner.
    change: Notify,
}

impl Shared {
    pub(crate) fn new(max_unflushed: usize) -> Shared {
        let engine = Mutex::new(Engine::new(max_unflushed));
        Shared { engine, work: Notify::new(), change: Notify::new() }
    }

    /// For one look, or one change that nobody waits for.
    pub(crate) fn engine(&self) -> impl DerefMut<Target = Engine> {
        // It is whole at every moment.
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // For the owner.

    /// Waits until a transaction may begin.
    pub(crate) async fn until_admitted(&self) -> Result<(), Busy> {
        loop {
            let admitted = self.engine().admit();
            match admitted {
                // A change between the question and this is noted until it is waited for.
                Err(Busy::Actualizing | Busy::Unflushed) => until(&self.change).await,
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

    /// Lets the keeper store what waits, and end.
    pub(crate) fn close(&self) {
        self.engine().close();
        self.work.notify_one();
    }

    // For the keeper.

    /// Waits until it is worth asking for work again.
    pub(crate) async fn until_work(&self) {
        until(&self.work).await;
    }

    /// Waits until it is to be closed.
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

/// Waits for what is told. Between the question whether to wait and this anything may happen, and the tests see to that.
async fn until(told: &Notify) {
    #[cfg(test)]
    shuttle::future::yield_now().await;
    told.notified().await;
}
