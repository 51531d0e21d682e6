//! The timestamps of writes.
//!
//! Invariant: the timestamp of an ordered write is negative, and that of any other write is not. A
//! simpler version takes the order itself as the timestamp. Then a plain write hides ordered writes
//! with low orders and is hidden by those with high ones, and no reader can tell the two apart.

use std::sync::atomic::{AtomicI64, Ordering};

use clock::Clock;
use istorage::Order;
use scylla::policies::timestamp_generator::TimestampGenerator;

/// The timestamp in the middle of the two bands of orders. The band *first* is below, and the band
/// *last* is above.
const MIDDLE: i64 = -(1 << 62);

/// The timestamp of an ordered write.
pub(crate) fn of_order(order: Order) -> i64 {
    // An order is at most 2^62 - 1 away from 0.
    MIDDLE + order.rank()
}

/// Whether a row that was written at this timestamp hides every ordered write.
pub(crate) fn hides_ordered(timestamp: i64) -> bool {
    timestamp >= 0
}

/// Gives each plain write the node's time in microseconds, and always more than the last timestamp.
/// So of two plain writes of one node the later one stays, whatever the servers are and however the
/// wall clock jumps.
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
    fn ordered_writes_are_below_the_time_of_every_clock() {
        let order = |number| Order::new(number).unwrap();
        let orders = [1, 2, Order::MAX].map(order);
        let [one, two, most] = orders;
        let ascending =
            [most.first_wins(), two.first_wins(), one.first_wins(), one, two, most].map(of_order);
        assert!(ascending.is_sorted_by(|lower, higher| lower < higher), "{ascending:?}");
        // Cassandra takes the least number for "no timestamp".
        assert!(ascending[0] > i64::MIN);
        assert_eq!(ascending.map(hides_ordered), [false; 6]);
        assert!(hides_ordered(0) && hides_ordered(1_795_237_782_051_000));
    }

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
