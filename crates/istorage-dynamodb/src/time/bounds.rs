//! The bounds of the service's time.

use std::time::Duration;

use clock::WallTime;

/// The resolution of dates.
const DATE_UNIT: Duration = Duration::from_secs(1);

/// The largest drift of two clocks against each other, in millionths: five times as fast as a time
/// server may slew one clock.
const DRIFT_PER_MILLION: u64 = 2_500;

/// The bounds of the service's time at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServiceTime {
    /// The service's time is not before this time.
    pub(crate) earliest: WallTime,
    /// The service's time is not after this time.
    pub(crate) latest: WallTime,
}

impl ServiceTime {
    /// The distance between the bounds.
    pub(crate) fn width(self) -> Duration {
        Duration::from_nanos(self.latest.as_nanos().saturating_sub(self.earliest.as_nanos()))
    }

    /// The bounds some time later: both bounds move on, and apart by the drift.
    pub(super) fn after(self, passed: Duration) -> ServiceTime {
        let drift = passed.mul_f64(DRIFT_PER_MILLION as f64 / 1e6);
        ServiceTime {
            earliest: self.earliest + passed.saturating_sub(drift),
            latest: self.latest + passed + drift,
        }
    }

    /// The bounds that an answer gives at the moment it comes. The answer was made at `date` or
    /// less than a second later, and the request took `took`.
    pub(super) fn from_answer(date: WallTime, took: Duration) -> ServiceTime {
        ServiceTime { earliest: date, latest: date + DATE_UNIT + took }
    }

    /// The bounds if both are true; `None` if they contradict each other.
    pub(super) fn intersection(self, other: ServiceTime) -> Option<ServiceTime> {
        let (earliest, latest) = (self.earliest.max(other.earliest), self.latest.min(other.latest));
        (earliest <= latest).then_some(ServiceTime { earliest, latest })
    }

    /// The bounds if at least one of the two is true.
    pub(super) fn union(self, other: ServiceTime) -> ServiceTime {
        let (earliest, latest) = (self.earliest.min(other.earliest), self.latest.max(other.latest));
        ServiceTime { earliest, latest }
    }
}
