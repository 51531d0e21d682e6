//! The time that judges expiry: it never goes back, neither by a step of the calendar nor by a restart.
//!
//! It starts at the calendar's time, or at the highest time that the file has seen if that is later, and goes on with
//! the monotonic clock. The file remembers the time together with every write that can expire.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use clock::{Clock, Instant, WallTime};

/// A moment of steady time, as nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(pub(crate) u64);

impl Moment {
    /// The moment after `duration`.
    pub(crate) fn after(self, duration: Duration) -> Moment {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Moment(self.0.saturating_add(nanos))
    }

    /// The time from `earlier`; zero if that is the later one.
    pub(crate) fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl From<WallTime> for Moment {
    fn from(wall: WallTime) -> Moment {
        Moment(wall.as_nanos())
    }
}

/// Reads steady time.
#[derive(Debug)]
pub(crate) struct SteadyTime {
    clock: Clock,
    started: Instant,
    /// Steady time at `started`, in nanoseconds; it is only ever raised.
    base: AtomicU64,
}

impl SteadyTime {
    pub(crate) fn new(clock: Clock) -> SteadyTime {
        let (started, base) = (clock.now(), AtomicU64::new(clock.wall().as_nanos()));
        SteadyTime { clock, started, base }
    }

    pub(crate) fn now(&self) -> Moment {
        let base = Moment(self.base.load(Ordering::Acquire));
        base.after(self.clock.now() - self.started)
    }

    /// Makes sure that the time is at least `seen`, which the file remembered.
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
    fn a_step_of_the_calendar_is_not_seen() {
        let manual = ManualClock::new(0);
        let time = SteadyTime::new(manual.clock());
        let start = time.now();
        manual.step_wall(-3_600_000);
        manual.advance(Duration::from_secs(5));
        manual.step_wall(7_200_000);
        assert_eq!(time.now().since(start), Duration::from_secs(5));
    }

    #[test]
    fn what_the_file_has_seen_raises_the_time_and_never_lowers_it() {
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
