//! The leader of each slot, as the storage told it last.
//!
//! Invariant: only [`LeadersSeen::watch`] asks the storage, one call at a time, on the runtime of elections. Requests
//! and `/status` read the last answer, so none of them waits for a call that another one began.

use std::{convert::Infallible, sync::OnceLock, time::Duration};

use clock::{Clock, Instant};
use ielections::{Leaders, Observer};
use tokio::sync::{Notify, watch};

/// An answer of the storage is fresh for so long.
const FRESH: Duration = Duration::from_millis(500);

/// A reader waits at most so long for the first answer.
const FIRST_WITHIN: Duration = Duration::from_millis(500);

/// What the storage told last about the leaders.
#[derive(Debug)]
pub(crate) struct LeadersSeen {
    clock: Clock,
    observer: OnceLock<Observer>,
    is_wanted: Notify,
    last: watch::Sender<Option<Seen>>,
}

/// One answer of the storage.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    pub(crate) leaders: Result<Leaders, String>,
}

impl LeadersSeen {
    pub(crate) fn new(clock: Clock) -> LeadersSeen {
        LeadersSeen {
            clock,
            observer: OnceLock::new(),
            is_wanted: Notify::new(),
            last: watch::Sender::new(None),
        }
    }

    /// The storage is open.
    pub(crate) fn observes(&self, observer: Observer) {
        // It is set once.
        let _ = self.observer.set(observer);
    }

    /// The last answer of the storage; a fresh one, if it comes within this time. For the first answer it waits
    /// longer; `None` if that does not come either.
    pub(crate) async fn get(&self, within: Duration) -> Option<Seen> {
        let mut last = self.last.subscribe();
        if self.observer.get().is_some() && !self.is_fresh(&last.borrow()) {
            self.is_wanted.notify_one();
            let within = if last.borrow().is_none() { FIRST_WITHIN } else { within };
            let fresh = last.wait_for(|seen| self.is_fresh(seen));
            // If it does not come, the last answer has to do.
            let _ = self.clock.timeout_at(self.clock.now() + within, fresh).await;
        }
        last.borrow().clone()
    }

    /// Asks the storage whenever somebody wants a fresh answer.
    pub(crate) async fn watch(&self) -> Infallible {
        loop {
            self.is_wanted.notified().await;
            let is_fresh = self.is_fresh(&self.last.borrow());
            if let Some(observer) = self.observer.get()
                && !is_fresh
            {
                let leaders = observer.leaders().await.map_err(|error| error.to_string());
                self.last.send_replace(Some(Seen { at: self.clock.now(), leaders }));
            }
        }
    }

    fn is_fresh(&self, seen: &Option<Seen>) -> bool {
        seen.as_ref().is_some_and(|seen| self.clock.now() < seen.at + FRESH)
    }
}
