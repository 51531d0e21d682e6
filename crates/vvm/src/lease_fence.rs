//! The fence of a seat: it tells the logs of the seat's partitions whether the lease still holds.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use clock::Instant;
use eventlog::{Epoch, Fence, LeadershipLost};
use ielections::WorkGuard;

/// The work guard of all partitions of a seat under one leadership.
#[derive(Debug)]
pub(crate) struct LeaseFence {
    epoch: Epoch,
    work: Mutex<Option<WorkGuard>>,
}

impl LeaseFence {
    pub(crate) fn new(work: WorkGuard) -> LeaseFence {
        LeaseFence { epoch: Epoch(work.epoch().0), work: Mutex::new(Some(work)) }
    }

    /// Reports that every write was answered and that nothing is written any more. Without this
    /// report the end of the work is not proved.
    pub(crate) fn finish(&self) {
        if let Some(work) = self.take() {
            work.finish();
        }
    }

    /// Drops the guard without a proof: no work goes on, but a write may still be under way. A
    /// reader that still holds this value is refused from now on.
    pub(crate) fn abandon(&self) {
        drop(self.take());
    }

    /// Begins another piece of work under the leadership, such as a repair. The lease is not released
    /// before this work has ended.
    pub(crate) fn begin_work(&self) -> Result<WorkGuard, LeadershipLost> {
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        match &*work {
            Some(work) => work.begin_another().map_err(|lost| LeadershipLost(lost.to_string())),
            None => Err(ended()),
        }
    }

    fn take(&self) -> Option<WorkGuard> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The time until the leadership ends (`valid_until`), unless the lease is renewed; `None` when
    /// it has ended.
    pub(crate) fn left(&self, now: Instant) -> Option<Duration> {
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        let until = work.as_ref()?.valid_until();
        (now < until).then(|| until - now)
    }

    fn ask(&self, timeout: Duration) -> Result<(), LeadershipLost> {
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        match &*work {
            Some(work) => work.may_send(timeout).map_err(|lost| LeadershipLost(lost.to_string())),
            None => Err(ended()),
        }
    }
}

fn ended() -> LeadershipLost {
    LeadershipLost("the work under this leadership has ended".to_owned())
}

impl Fence for LeaseFence {
    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn may_send(&self, timeout: Duration) -> bool {
        self.ask(timeout).is_ok()
    }

    fn lost(&self) -> Option<LeadershipLost> {
        self.ask(Duration::ZERO).err()
    }
}
