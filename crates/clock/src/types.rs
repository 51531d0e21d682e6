//! The two kinds of time: monotonic time and the calendar.

use std::{
    ops::{Add, Sub},
    time::Duration,
};

/// A moment of monotonic time. On Linux and Android, time also counts while the machine sleeps. Two
/// moments can be compared only if both were read on one machine since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub(crate) Duration);

impl Instant {
    /// A moment that never comes. A call with this deadline has no bound.
    pub const FAR_FUTURE: Instant = Instant(Duration::MAX);

    /// A moment before all others.
    pub const FAR_PAST: Instant = Instant(Duration::ZERO);

    /// The time from `earlier` to `self`, zero if `earlier` is later than `self`.
    #[must_use]
    pub fn saturating_since(self, earlier: Instant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_add(duration))
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;

    fn sub(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_sub(duration))
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        self.saturating_since(earlier)
    }
}

/// A moment of the calendar, as nanoseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(u64);

impl WallTime {
    /// A moment from nanoseconds since 1970.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> WallTime {
        WallTime(nanos)
    }

    /// A moment from milliseconds since 1970. Moments beyond the year 2554 do not fit and become
    /// the last one that fits.
    #[must_use]
    pub const fn from_millis(millis: u64) -> WallTime {
        WallTime(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds since 1970.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole microseconds since 1970.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Whole milliseconds since 1970.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// How many milliseconds `self` is ahead of `other`; negative if `self` is behind.
    #[must_use]
    pub const fn millis_ahead_of(self, other: WallTime) -> i64 {
        (self.as_millis() as i64).saturating_sub(other.as_millis() as i64)
    }

    pub(crate) const fn shifted(self, by_nanos: i64) -> WallTime {
        WallTime(self.0.saturating_add_signed(by_nanos))
    }
}

impl Add<Duration> for WallTime {
    type Output = WallTime;

    fn add(self, duration: Duration) -> WallTime {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        WallTime(self.0.saturating_add(nanos))
    }
}
