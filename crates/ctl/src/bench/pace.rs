//! The times at which a client sends its requests.

use std::time::Duration;

use clock::{Clock, Instant};

/// The times of the requests of one client.
pub(super) struct RequestPace {
    /// The time between two requests. `None` if each request follows the answer to the one before.
    every: Option<Duration>,
    due: Instant,
}

impl RequestPace {
    /// Makes the pace of one client. All clients together send `rate` requests a second. Without a
    /// rate each client sends as many as it can.
    pub(super) fn new(rate: Option<u32>, clients: u32, number: u32, start: Instant) -> RequestPace {
        let every = rate.map(|rate| Duration::from_secs(u64::from(clients)) / rate);
        let due = start + every.map_or(Duration::ZERO, |every| every * number / clients);
        RequestPace { every, due }
    }

    /// Waits until the next request is due, and returns that time. `None` if the end comes first,
    /// or has come. A request that was due then stays among those that are
    /// [left](RequestPace::left).
    pub(super) async fn next(&mut self, clock: &Clock, end: Instant) -> Option<Instant> {
        let Some(every) = self.every else { return Some(clock.now()) };
        let due = self.due;
        if due >= end {
            return None;
        }
        clock.sleep_until(due).await;
        if clock.now() >= end {
            return None;
        }
        self.due = due + every;
        Some(due)
    }

    /// Returns the number of requests that are still due before the end.
    pub(super) fn left(&self, end: Instant) -> u64 {
        let Some(every) = self.every else { return 0 };
        end.saturating_since(self.due).as_nanos().div_ceil(every.as_nanos().max(1)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_open_loop_is_due_at_its_rate_whatever_is_answered() {
        let manual = clock::ManualClock::new(1);
        let clock = manual.clock();
        let start = clock.now();
        let mut pace = RequestPace::new(Some(100), 2, 1, start);
        manual.advance(Duration::from_millis(999));
        let end = start + Duration::from_secs(1);
        let mut due = Vec::new();
        while let Some(moment) = pace.next(&clock, end).await {
            due.push(moment - start);
            assert_eq!(due.len() as u64 + pace.left(end), 50);
        }
        assert_eq!(due.len(), 50);
        assert_eq!(due[0], Duration::from_millis(10));
        assert_eq!(due[1] - due[0], Duration::from_millis(20));
    }

    /// A client that got its last answer behind the end dropped the next request from all counts.
    #[tokio::test]
    async fn a_request_that_was_due_before_the_end_is_left_behind_it() {
        let manual = clock::ManualClock::new(1);
        let clock = manual.clock();
        let end = clock.now() + Duration::from_secs(1);
        let mut pace = RequestPace::new(Some(100), 2, 1, clock.now());
        manual.advance(Duration::from_secs(1));
        assert_eq!(pace.next(&clock, end).await, None);
        assert_eq!(pace.left(end), 50);
    }
}
