//! The timings of elections.

use std::time::Duration;

use ielections::Timing;

use super::{LEASE, MILLI};

/// Returns the usual timing of an operator.
pub(super) fn usual(clock_skew: Duration) -> Timing {
    Timing { clock_skew, ..Timing::of(LEASE) }
}

/// Returns a timing with nothing to spare: an error of a few milliseconds breaks an invariant.
pub(super) fn tight(clock_skew: Duration) -> Timing {
    let timing = Timing { stop_grace: 10 * MILLI, ..usual(clock_skew) };
    let rest = timing.renew_every + timing.stop_grace + timing.late_write + timing.clock_skew;
    Timing { retry_for: LEASE - rest - LEASE / 1_000, ..timing }
}

/// Returns a timing with writes of the work that may land half a lease after they were sent.
pub(super) fn slow_writes(clock_skew: Duration) -> Timing {
    let late_write = LEASE / 2;
    let stop_grace = 50 * MILLI;
    Timing { late_write, stop_grace, renew_every: LEASE / 8, ..usual(clock_skew) }
}
