//! The time of the events of a partition.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use clock::WallTime;

/// The time of the last event of a partition, or of the last command that could make one. The time
/// never goes back. Clones share the time.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventTime(Arc<AtomicU64>);

impl EventTime {
    /// Goes on to `now`, unless `now` is earlier.
    pub(crate) fn advance(&self, now: WallTime) {
        self.0.fetch_max(now.as_nanos(), Ordering::AcqRel);
    }

    pub(crate) fn last(&self) -> WallTime {
        WallTime::from_nanos(self.0.load(Ordering::Acquire))
    }
}
