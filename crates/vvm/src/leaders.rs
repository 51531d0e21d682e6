//! The leader of each slot, as the storage told it last.
//!
//! Invariant: only [`LeadersSeen::watch`] asks the storage, one call at a time, on the runtime of elections. Requests
//! and `/status` read the last answer. They wait for a fresh one only for a short time of their own.

use std::{convert::Infallible, sync::OnceLock, time::Duration};

use clock::{Clock, Instant};
use ielections::{Leaders, Observer};
use tokio::sync::{Notify, watch};

/// An answer of the storage is fresh for so long.
const FRESH: Duration = Duration::from_millis(500);

/// A reader waits at most so long while nothing is known.
const FIRST_WITHIN: Duration = Duration::from_millis(500);

/// What the storage told last about the leaders.
#[derive(Debug)]
pub(crate) struct LeadersSeen {
    clock: Clock,
    observer: OnceLock<Observer>,
    is_wanted: Notify,
    last: watch::Sender<Seen>,
}

/// What the storage told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// The last answer, and when it came.
    pub(crate) answer: Option<(Instant, Leaders)>,
    /// Why the last call has failed, if it has.
    pub(crate) trouble: Option<String>,
    /// When the last call ended.
    ended: Option<Instant>,
}

impl LeadersSeen {
    pub(crate) fn new(clock: Clock) -> LeadersSeen {
        LeadersSeen {
            clock,
            observer: OnceLock::new(),
            is_wanted: Notify::new(),
            last: watch::Sender::new(Seen::default()),
        }
    }

    /// The storage is open.
    pub(crate) fn observes(&self, observer: Observer) {
        // It is set once.
        let _ = self.observer.set(observer);
    }

    /// What the storage told, after a fresh call if that ends within this time. While nothing is known this waits
    /// longer.
    pub(crate) async fn get(&self, within: Duration) -> Seen {
        let mut last = self.last.subscribe();
        if self.observer.get().is_some() && !self.is_fresh(&last.borrow()) {
            self.is_wanted.notify_one();
            let within = if last.borrow().ended.is_none() { FIRST_WITHIN } else { within };
            let fresh = last.wait_for(|seen| self.is_fresh(seen));
            // If the call does not end, the last answer has to do.
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
                let leaders = observer.leaders().await;
                let now = self.clock.now();
                self.last.send_modify(|seen| seen.hear(now, leaders.map_err(|e| e.to_string())));
            }
        }
    }

    fn is_fresh(&self, seen: &Seen) -> bool {
        seen.ended.is_some_and(|ended| self.clock.now() < ended + FRESH)
    }
}

impl Seen {
    /// A call that fails leaves the last answer as it is.
    fn hear(&mut self, now: Instant, leaders: Result<Leaders, String>) {
        self.ended = Some(now);
        match leaders {
            Ok(leaders) => (self.answer, self.trouble) = (Some((now, leaders)), None),
            Err(trouble) => self.trouble = Some(trouble),
        }
    }
}
