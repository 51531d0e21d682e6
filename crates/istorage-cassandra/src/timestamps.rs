//! The timestamps of plain writes.

use std::sync::atomic::{AtomicI64, Ordering};

use clock::Clock;
use scylla::policies::timestamp_generator::TimestampGenerator;

/// Gives each plain write the node's time in microseconds, and always more than the last timestamp.
/// So of two plain writes of one node the later one stays, through any servers and however the wall
/// clock jumps.
///
/// An ordered write has its timestamp in its statement, and the servers agree on the timestamp of a
/// conditional write. Both ignore the timestamp of this generator.
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
        // Relaxed orderings are enough: the threads share only this number, and the changes of one
        // atomic number always have one order.
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
    fn timestamps_rise_although_the_wall_clock_stands_still_or_goes_back() {
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
