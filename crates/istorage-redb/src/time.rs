//! The time that judges expiry: a time of the file's own, which goes on with the monotonic clock
//! while the file is open, and stands still while the file is closed.
//!
//! Invariant: after a restart the file's time is not earlier than the time that judged the last
//! write. Each frame of the log and each commit of the file has the time.
//!
//! The file does not use the calendar. If it did, and a machine started with a calendar far ahead,
//! everything would expire at once, and the removed rows would not come back.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use clock::{Clock, Instant};

/// A moment of steady time: how many nanoseconds the file has been open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(pub(crate) u64);

impl Moment {
    /// The moment after `duration`.
    pub(crate) fn after(self, duration: Duration) -> Moment {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Moment(self.0.saturating_add(nanos))
    }

    /// The time from `earlier` to this moment; zero if `earlier` is the later one.
    pub(crate) fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Reads steady time.
pub(crate) struct SteadyTime {
    clock: Clock,
    started: Instant,
    /// Steady time at `started`, in nanoseconds. The value never goes down.
    base: AtomicU64,
}

impl SteadyTime {
    pub(crate) fn new(clock: Clock) -> SteadyTime {
        SteadyTime { started: clock.now(), base: AtomicU64::new(0), clock }
    }

    pub(crate) fn now(&self) -> Moment {
        let base = Moment(self.base.load(Ordering::Acquire));
        base.after(self.clock.now() - self.started)
    }

    /// Raises the time to at least `seen`, which was read from the file.
    pub(crate) fn raise(&self, seen: Moment) {
        let elapsed = Moment(0).after(self.clock.now() - self.started);
        self.base.fetch_max(seen.0.saturating_sub(elapsed.0), Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use clock::ManualClock;

    use super::*;

    #[test]
    fn a_step_of_the_calendar_does_not_change_steady_time() {
        let manual = ManualClock::new(0);
        let time = SteadyTime::new(manual.clock());
        let start = time.now();
        manual.step_wall(-3_600_000);
        manual.advance(Duration::from_secs(5));
        manual.step_wall(7_200_000);
        assert_eq!(time.now().since(start), Duration::from_secs(5));
    }

    #[test]
    fn the_time_in_the_file_raises_the_time_and_never_lowers_it() {
        let manual = ManualClock::new(0);
        let time = SteadyTime::new(manual.clock());
        manual.advance(Duration::from_secs(5));
        let now = time.now();
        time.raise(Moment(now.0 - 1));
        assert_eq!(time.now(), now);
        let seen = now.after(Duration::from_secs(60));
        time.raise(seen);
        assert_eq!(time.now(), seen);
    }
}
