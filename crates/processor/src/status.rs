//! The status of a partition.

use std::{fmt, time::Duration};

use crate::{Busy, FullQueue};

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
    /// The partition takes no more commands, because too many commands or numbers wait. It goes on
    /// by itself.
    Full(FullQueue),
    /// A row holds something else than it must, or the storage has lost the last version of a
    /// record. The partition goes on when the row is repaired.
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
    /// The reason why the partition takes no commands now. `retry_after` is the time that it needs
    /// for a full queue.
    pub(crate) fn busy(&self, retry_after: Duration) -> Option<Busy> {
        Some(match self {
            Status::Ready => return None,
            Status::Full(full) => Busy::QueueFull { full: *full, retry_after },
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
            Status::Full(full) => write!(f, "full: {full}"),
            Status::Violation(what) => write!(f, "violation: {what}"),
            Status::LeadershipLost(why) => write!(f, "leadership lost: {why}"),
            Status::Failed(why) => write!(f, "failed: {why}"),
            Status::Stopped => f.write_str("stopped"),
        }
    }
}
