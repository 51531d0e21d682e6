//! The clock of a node.

use std::time::Duration;

use clock::Instant;

/// The clock of a node, described by its difference from the true time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalClock {
    pub(crate) base: Instant,
    pub(crate) ahead: Duration,
    pub(crate) per_million: i32,
}

impl LocalClock {
    pub(crate) fn at(&self, truth: Duration) -> Instant {
        let drift = truth.as_nanos() as i128 * i128::from(self.per_million) / 1_000_000;
        let nanos = truth.as_nanos() as i128 + drift;
        self.base + self.ahead + Duration::from_nanos(nanos as u64)
    }

    /// Returns the true time when the clock shows `local`, or a little later.
    pub(crate) fn truth(&self, local: Instant) -> Duration {
        let passed = local.saturating_since(self.base + self.ahead).as_nanos() as i128;
        let truth = passed * 1_000_000 / (1_000_000 + i128::from(self.per_million));
        Duration::from_nanos(truth as u64 + 1)
    }
}
