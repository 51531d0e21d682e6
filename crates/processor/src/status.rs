//! The status of a partition, and the state that its task and the senders of commands share.

use std::{
    fmt,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use clock::Clock;
use eventlog::Offset;

use crate::{Busy, damage::Damage, meters::PartitionMeters};

/// The status of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// The log is being read. The text is the error that delays the recovery.
    Recovering(Option<String>),
    /// The partition runs commands.
    Ready,
    /// The partition runs no commands because the storage does not take a write that must come
    /// first, or does not answer reads. The text is the reason. The partition goes on by itself.
    Stalled(String),
    /// A row holds something else than it must. The partition goes on when the row is repaired.
    Violation(String),
    /// The partition has ended for good because another node leads.
    LeadershipLost(String),
    /// The partition has ended, and may still have a write under way. It can be deployed again only
    /// under a new leadership.
    Failed(String),
    /// The partition is being stopped, or has stopped.
    Stopped,
}

impl Status {
    /// The reason why the partition runs no commands now.
    fn busy(&self) -> Option<Busy> {
        Some(match self {
            Status::Ready => return None,
            Status::Recovering(error) => Busy::Recovering(error.clone()),
            Status::Stalled(what) => Busy::Storage(what.clone()),
            Status::Violation(what) => Busy::Violation(what.clone()),
            Status::LeadershipLost(why) => Busy::LeadershipLost(why.clone()),
            Status::Failed(why) => Busy::Failed(why.clone()),
            Status::Stopped => Busy::Stopping,
        })
    }
}

/// Prints the status in a few words, with its reason.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Status::Recovering(None) => f.write_str("recovering"),
            Status::Recovering(Some(error)) => write!(f, "recovering: {error}"),
            Status::Ready => f.write_str("ready"),
            Status::Stalled(what) => write!(f, "stalled: {what}"),
            Status::Violation(what) => write!(f, "violation: {what}"),
            Status::LeadershipLost(why) => write!(f, "leadership lost: {why}"),
            Status::Failed(why) => write!(f, "failed: {why}"),
            Status::Stopped => f.write_str("stopped"),
        }
    }
}

/// The state that the task of the partition and the senders of commands share.
#[derive(Debug)]
pub(crate) struct PartitionShared {
    status: Mutex<Status>,
    is_ready: AtomicBool,
    /// The offset of the first event that is not known to be applied; 0 before the log was read.
    applied: AtomicU64,
    pub(crate) damage: Damage,
    pub(crate) clock: Clock,
    pub(crate) meters: PartitionMeters,
}

impl PartitionShared {
    pub(crate) fn new(clock: Clock, meters: PartitionMeters) -> PartitionShared {
        let status = Mutex::new(Status::Recovering(None));
        let (is_ready, applied) = (AtomicBool::new(false), AtomicU64::new(0));
        let damage = Damage::default();
        PartitionShared { status, is_ready, applied, damage, clock, meters }
    }

    pub(crate) fn status(&self) -> Status {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the status. Returns whether the status changed.
    pub(crate) fn set(&self, status: Status) -> bool {
        let mut current = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_ready.store(status == Status::Ready, Ordering::Release);
        self.meters.status(&status);
        let is_news = *current != status;
        *current = status;
        is_news
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
        if self.is_ready.load(Ordering::Acquire) { None } else { self.status().busy() }
    }
}
