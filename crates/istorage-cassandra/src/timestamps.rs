//! The timestamps of plain writes.

use std::sync::atomic::{AtomicI64, Ordering};

use clock::Clock;
use scylla::policies::timestamp_generator::TimestampGenerator;

/// The node's time in microseconds, and always more than the last one: of two plain writes of one node the later one stays,
/// whichever servers they go through and however the calendar jumps.
///
/// Ordered writes say their timestamp themselves, and conditional ones get theirs from the servers' agreement; both
/// ignore this one.
pub(crate) struct Timestamps {
    clock: Clock,
    last: AtomicI64,
}

impl Timestamps {
    pub(crate) fn new(clock: Clock) -> Timestamps {
        Timestamps { clock, last: AtomicI64::new(0) }
    }
}

impl TimestampGenerator for Timestamps {
    fn next_timestamp(&self) -> i64 {
        let now = i64::try_from(self.clock.wall().as_micros()).unwrap_or(i64::MAX);
        let next = |last: i64| now.max(last.saturating_add(1));
        // The orderings are relaxed: only this one number is shared, and its changes have one order anyway.
        let last =
            self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        next(last.unwrap_or_else(|last| last))
    }
}

#[cfg(test)]
mod tests {
    use clock::ManualClock;

    use super::*;

    #[test]
    fn they_rise_although_time_stands_still_or_goes_back() {
        let manual = ManualClock::new(0);
        let timestamps = Timestamps::new(manual.clock());
        let first = timestamps.next_timestamp();
        assert_eq!(first, i64::try_from(manual.clock().wall().as_micros()).unwrap());
        assert_eq!(timestamps.next_timestamp(), first + 1);
        manual.step_wall(-60_000);
        assert_eq!(timestamps.next_timestamp(), first + 2);
        manual.step_wall(120_000);
        assert_eq!(timestamps.next_timestamp(), first + 60_000_000);
    }
}
