//! The state that the task of a partition and the senders of commands share.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use base::locks::lock;
use clock::Clock;
use eventlog::{Obstacle, Offset};
use tracing::warn;

use crate::{
    Busy, FullQueue, Status,
    damage::Damage,
    event_time::EventTime,
    meters::PartitionMeters,
    outdated::{OutdatedRecord, OutdatedSlot},
    watchers::LogWatchers,
};

/// The state that the task of the partition and the senders of commands share.
#[derive(Debug)]
pub(crate) struct PartitionShared {
    status: Mutex<Status>,
    is_ready: AtomicBool,
    /// The row that keeps the partition from working, while the status is a violation.
    obstacle: Mutex<Option<Obstacle>>,
    /// The offset of the first event that is not known to be applied; 0 before the log was read.
    applied: AtomicU64,
    /// The number of groups that a full queue makes.
    groups_of_queue: u64,
    /// The mean time of the last groups; 0 before the first group.
    group_nanos: AtomicU64,
    pub(crate) time: EventTime,
    pub(crate) damage: Damage,
    pub(crate) outdated: OutdatedSlot,
    pub(crate) watchers: LogWatchers,
    pub(crate) clock: Clock,
    pub(crate) meters: PartitionMeters,
}

impl PartitionShared {
    pub(crate) fn new(
        clock: Clock,
        meters: PartitionMeters,
        groups_of_queue: u64,
    ) -> PartitionShared {
        let status = Mutex::new(Status::Recovering(None));
        let (is_ready, applied) = (AtomicBool::new(false), AtomicU64::new(0));
        PartitionShared {
            status,
            is_ready,
            obstacle: Mutex::default(),
            applied,
            groups_of_queue,
            group_nanos: AtomicU64::new(0),
            time: EventTime::default(),
            damage: Damage::default(),
            outdated: OutdatedSlot::default(),
            watchers: LogWatchers::default(),
            clock,
            meters,
        }
    }

    pub(crate) fn status(&self) -> Status {
        lock(&self.status).clone()
    }

    /// Sets the status. Returns whether the status changed.
    pub(crate) fn set(&self, status: Status) -> bool {
        let mut current = lock(&self.status);
        self.is_ready.store(status == Status::Ready, Ordering::Release);
        self.meters.status(&status);
        let is_news = *current != status;
        *current = status;
        is_news
    }

    /// Notes an outdated record that a command or a reader has met. Only the first one is logged
    /// and stops the partition.
    pub(crate) fn note_outdated(&self, outdated: OutdatedRecord, partition: u16) {
        if self.outdated.note(outdated) {
            let error = outdated.error();
            warn!(partition, %error, "record is older than its acknowledged version");
        }
    }

    /// Notes the row that keeps the partition from working. `None` if no row does.
    pub(crate) fn set_obstacle(&self, obstacle: Option<Obstacle>) {
        *lock(&self.obstacle) = obstacle;
    }

    /// The row that keeps the partition from working.
    pub(crate) fn obstacle(&self) -> Option<Obstacle> {
        lock(&self.obstacle).clone()
    }

    /// Notes that all events before this offset are applied.
    pub(crate) fn set_applied(&self, next: Offset) {
        self.applied.store(next.0, Ordering::Release);
    }

    /// The offset of the first event that is not known to be applied.
    ///
    /// # Errors
    /// The reason why the log was not read yet.
    pub(crate) fn applied(&self) -> Result<Offset, Busy> {
        match self.applied.load(Ordering::Acquire) {
            0 => Err(self.busy().unwrap_or(Busy::Recovering(None))),
            offset => Ok(Offset(offset)),
        }
    }

    /// The reason why the partition runs no commands now.
    pub(crate) fn busy(&self) -> Option<Busy> {
        if self.is_ready.load(Ordering::Acquire) {
            None
        } else {
            self.status().busy(self.retry_after())
        }
    }

    /// Notes how long the partition needed for a group.
    pub(crate) fn note_group(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let before = self.group_nanos.load(Ordering::Relaxed);
        // Each group counts for a quarter, so that one slow group does not send clients away.
        let mean = if before == 0 { nanos } else { before - before / 4 + nanos / 4 };
        self.group_nanos.store(mean, Ordering::Relaxed);
    }

    /// The refusal of a command when the queue has no place for it.
    pub(crate) fn queue_full(&self) -> Busy {
        Busy::QueueFull { full: FullQueue::Commands, retry_after: self.retry_after() }
    }

    /// The time that the partition needs for the groups of a full queue, if each takes as long as
    /// the last groups took.
    fn retry_after(&self) -> Duration {
        let nanos = self.group_nanos.load(Ordering::Relaxed);
        Duration::from_nanos(nanos.saturating_mul(self.groups_of_queue))
    }
}

#[cfg(test)]
mod tests {
    use clock::ManualClock;

    use super::*;

    /// A client that is told a wrong time comes back too early, or much too late.
    #[test]
    fn a_full_queue_says_how_long_its_groups_take() {
        let clock = ManualClock::new(1).clock();
        let shared = PartitionShared::new(clock, PartitionMeters::new("test"), 3);
        let retry_after = || match shared.queue_full() {
            Busy::QueueFull { retry_after, .. } => retry_after,
            other => panic!("{other:?}"),
        };
        assert_eq!(retry_after(), Duration::ZERO, "no group was measured");
        shared.note_group(Duration::from_secs(4));
        assert_eq!(retry_after(), Duration::from_secs(12));
        // A group counts for a quarter.
        shared.note_group(Duration::from_secs(8));
        assert_eq!(retry_after(), Duration::from_secs(15));
    }
}
