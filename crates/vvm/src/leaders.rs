//! The leader of each seat, as the storage reported it last.
//!
//! Invariant: only [`LeadersCache::watch`] asks the storage, one call at a time, on the runtime of
//! elections. Requests and `/status` read the last answer. They wait for a fresh answer only for a
//! short time of their own.

use std::{convert::Infallible, sync::OnceLock, time::Duration};

use causes::with_causes;
use clock::{Clock, Instant};
use ielections::{Leaders, Observer};
use tokio::sync::{Notify, watch};

/// The time for which an answer of the storage is fresh.
const FRESH: Duration = Duration::from_millis(500);

/// The longest time that a reader waits while nothing is known.
const FIRST_WITHIN: Duration = Duration::from_millis(500);

/// The last report of the storage about the leaders.
#[derive(Debug)]
pub(crate) struct LeadersCache {
    clock: Clock,
    observer: OnceLock<Observer>,
    is_wanted: Notify,
    last: watch::Sender<LeadersReport>,
}

/// A report of the storage.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeadersReport {
    /// The last answer, and the time of its arrival.
    pub(crate) answer: Option<(Instant, Leaders)>,
    /// The error of the last call, if the call failed.
    pub(crate) last_error: Option<String>,
    /// The end of the last call.
    ended: Option<Instant>,
}

impl LeadersCache {
    pub(crate) fn new(clock: Clock) -> LeadersCache {
        LeadersCache {
            clock,
            observer: OnceLock::new(),
            is_wanted: Notify::new(),
            last: watch::Sender::new(LeadersReport::default()),
        }
    }

    /// Sets the observer when the storage is open.
    pub(crate) fn set_observer(&self, observer: Observer) {
        // The observer is set only once.
        let _ = self.observer.set(observer);
    }

    /// The last report, after a fresh call if that call ends within this time. While nothing is
    /// known, this method waits longer.
    pub(crate) async fn get(&self, within: Duration) -> LeadersReport {
        let mut last = self.last.subscribe();
        if self.observer.get().is_some() && !self.is_fresh(&last.borrow()) {
            self.is_wanted.notify_one();
            let within = if last.borrow().ended.is_none() { FIRST_WITHIN } else { within };
            let fresh = last.wait_for(|seen| self.is_fresh(seen));
            // If the call does not end in time, the last answer is used.
            let _ = self.clock.timeout_at(self.clock.now() + within, fresh).await;
        }
        last.borrow().clone()
    }

    /// Asks the storage each time that a reader wants a fresh answer.
    pub(crate) async fn watch(&self) -> Infallible {
        loop {
            self.is_wanted.notified().await;
            let is_fresh = self.is_fresh(&self.last.borrow());
            if let Some(observer) = self.observer.get()
                && !is_fresh
            {
                let leaders = observer.leaders().await.map_err(|error| with_causes(&error));
                let now = self.clock.now();
                self.last.send_modify(|seen| seen.note_answer(now, leaders));
            }
        }
    }

    fn is_fresh(&self, seen: &LeadersReport) -> bool {
        seen.ended.is_some_and(|ended| self.clock.now() < ended + FRESH)
    }
}

impl LeadersReport {
    /// Notes the result of a call. A call that fails leaves the last answer as it is.
    fn note_answer(&mut self, now: Instant, leaders: Result<Leaders, String>) {
        self.ended = Some(now);
        match leaders {
            Ok(leaders) => (self.answer, self.last_error) = (Some((now, leaders)), None),
            Err(error) => self.last_error = Some(error),
        }
    }
}
