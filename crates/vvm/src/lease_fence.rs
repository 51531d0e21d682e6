//! The fences of a leadership: they hold the work guards of the node and of its partitions, and
//! tell the logs of the partitions whether the lease still holds.

use std::{
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use base::locks::lock;
use clock::Instant;
use eventlog::{Epoch, Fence, LeadershipLost};
use ielections::{Incarnation, WorkGuard};

/// The work guard of a node under one leadership. The work of each partition has a guard of its
/// own.
#[derive(Debug)]
pub(crate) struct LeaseFence {
    epoch: Epoch,
    incarnation: Incarnation,
    work: HeldGuard,
}

impl LeaseFence {
    pub(crate) fn new(work: WorkGuard) -> LeaseFence {
        let (epoch, incarnation) = (work.epoch(), work.incarnation());
        LeaseFence { epoch, incarnation, work: HeldGuard::new(work) }
    }

    /// The epoch of the leadership.
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The incarnation of the lease.
    pub(crate) fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Reports that nothing is written any more. Without this report the end of the work is not
    /// proved.
    pub(crate) fn finish(&self) {
        self.work.finish();
    }

    /// Drops the guard without a proof: no work goes on, but a write may still be under way.
    pub(crate) fn abandon(&self) {
        self.work.abandon();
    }

    /// The time until the leadership ends (`valid_until`), unless the lease is renewed; `None` when
    /// it has ended, even if it was lost before that time.
    pub(crate) fn left(&self, now: Instant) -> Option<Duration> {
        let work = lock(&self.work.0);
        let work = work.as_ref().filter(|work| work.may_send(Duration::ZERO).is_ok())?;
        let until = work.valid_until();
        (now < until).then(|| until - now)
    }
}

/// The work guard of one start of a partition. The log of the partition asks it before each write.
#[derive(Debug)]
pub(crate) struct PartitionFence {
    epoch: Epoch,
    work: HeldGuard,
    /// The reason why nothing may be sent any more, although the lease holds.
    closed: OnceLock<String>,
    /// Each piece of work beside the log holds a clone; `None` when no more may begin.
    others: Mutex<Option<Arc<()>>>,
    /// The guards of work beside the log that ended with a write which may still land.
    unproved: Arc<Mutex<Vec<WorkGuard>>>,
}

/// A piece of work on a partition beside its log, such as a repair. The partition is not given to
/// another node, and the lease is not released, before this work has ended.
#[derive(Debug)]
pub(crate) struct PartitionWork {
    guard: Option<WorkGuard>,
    unproved: Arc<Mutex<Vec<WorkGuard>>>,
    _counted: Arc<()>,
}

impl PartitionWork {
    /// Confirms that the work has ended, and that every write it sent was answered.
    pub(crate) fn finish(mut self) {
        if let Some(guard) = self.guard.take() {
            guard.finish();
        }
    }
}

impl Drop for PartitionWork {
    fn drop(&mut self) {
        // The guard stays until a later epoch fences the write, or the lease ends.
        if let Some(guard) = self.guard.take() {
            lock(&self.unproved).push(guard);
        }
    }
}

impl PartitionFence {
    /// Makes the fence of a partition that works under this epoch.
    pub(crate) fn new(epoch: Epoch, work: WorkGuard) -> PartitionFence {
        let others = Mutex::new(Some(Arc::new(())));
        let (work, closed) = (HeldGuard::new(work), OnceLock::new());
        PartitionFence { epoch, work, closed, others, unproved: Arc::default() }
    }

    /// Refuses all writes from now on, although the lease holds. A write that was sent before may
    /// still land. The first reason stays.
    pub(crate) fn close(&self, why: &str) {
        let _ = self.closed.set(why.to_owned());
    }

    /// Reports that every write of the partition was answered and that nothing of the partition is
    /// written any more. Without this report the end of the work is not proved.
    pub(crate) fn finish(&self) {
        self.work.finish();
        let unproved = std::mem::take(&mut *lock(&self.unproved));
        unproved.into_iter().for_each(WorkGuard::finish);
    }

    /// Drops the guard without a proof: no work goes on, but a write may still be under way. A
    /// reader that still holds this value is refused from now on.
    pub(crate) fn abandon(&self) {
        self.work.abandon();
        let unproved = std::mem::take(&mut *lock(&self.unproved));
        drop(unproved);
    }

    /// Begins another piece of work on the partition, such as a repair.
    pub(crate) fn begin_work(&self) -> Result<PartitionWork, LeadershipLost> {
        self.ask(Duration::ZERO)?;
        let counted = lock(&self.others).clone().ok_or_else(ended)?;
        let guard = Some(self.work.begin_another()?);
        Ok(PartitionWork { guard, unproved: Arc::clone(&self.unproved), _counted: counted })
    }

    /// Whether work beside the log ended with a write that may still land. The partition has not
    /// stopped for certain then, even if its log has.
    pub(crate) fn has_unproved_work(&self) -> bool {
        !lock(&self.unproved).is_empty()
    }

    /// Refuses further work beside the log, if none is under way. Returns whether none is.
    pub(crate) fn end_other_work(&self) -> bool {
        let mut others = lock(&self.others);
        let is_idle = others.as_ref().is_none_or(|counted| Arc::strong_count(counted) == 1);
        if is_idle {
            *others = None;
        }
        is_idle
    }

    fn ask(&self, timeout: Duration) -> Result<(), LeadershipLost> {
        match self.closed.get() {
            Some(why) => Err(LeadershipLost(why.clone())),
            None => self.work.ask(timeout),
        }
    }
}

impl Fence for PartitionFence {
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

/// A work guard until the end of its work.
#[derive(Debug)]
struct HeldGuard(Mutex<Option<WorkGuard>>);

impl HeldGuard {
    fn new(work: WorkGuard) -> HeldGuard {
        HeldGuard(Mutex::new(Some(work)))
    }

    fn finish(&self) {
        // The lock is released first: the end of a guard takes locks of the leadership.
        let work = lock(&self.0).take();
        if let Some(work) = work {
            work.finish();
        }
    }

    fn abandon(&self) {
        let work = lock(&self.0).take();
        drop(work);
    }

    fn begin_another(&self) -> Result<WorkGuard, LeadershipLost> {
        match &*lock(&self.0) {
            Some(work) => work.begin_another().map_err(|lost| LeadershipLost(lost.to_string())),
            None => Err(ended()),
        }
    }

    fn ask(&self, timeout: Duration) -> Result<(), LeadershipLost> {
        match &*lock(&self.0) {
            Some(work) => work.may_send(timeout).map_err(|lost| LeadershipLost(lost.to_string())),
            None => Err(ended()),
        }
    }
}

fn ended() -> LeadershipLost {
    LeadershipLost("the work under this leadership has ended".to_owned())
}
