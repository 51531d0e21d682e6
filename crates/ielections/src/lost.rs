//! Why a leadership ended.

use std::fmt;

use crate::Lease;

/// Why a leadership ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// It was given away: all work has stopped.
    Released,
    /// The leadership was dropped, or the runtime that renewed it was shut down. The lease is left to expire.
    Dropped,
    /// The task that renewed it ended by a panic, of the health check or of the store.
    Panicked,
    /// It could not be renewed in time: the store did not answer, or this process stood still.
    Expired,
    /// What is led is not well.
    Unhealthy,
    /// Another lease stands in its place; `None` if those bytes are no lease.
    Taken(Option<Lease>),
    /// The lease is not there any more: somebody removed it.
    Gone,
    /// The store does not work any more.
    Broken,
}

impl Lost {
    /// As it is called in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Lost::Released => "released",
            Lost::Dropped => "dropped",
            Lost::Panicked => "panicked",
            Lost::Expired => "expired",
            Lost::Unhealthy => "unhealthy",
            Lost::Taken(_) => "taken",
            Lost::Gone => "gone",
            Lost::Broken => "broken",
        }
    }
}

impl std::error::Error for Lost {}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lost::Released => f.write_str("it was released"),
            Lost::Dropped => f.write_str("nothing renews it any more"),
            Lost::Panicked => f.write_str("the task that renewed it panicked"),
            Lost::Expired => f.write_str("it could not be renewed in time"),
            Lost::Unhealthy => f.write_str("what it led was not well"),
            Lost::Taken(Some(lease)) => {
                write!(f, "{} took it in epoch {}", lease.owner, lease.epoch)
            }
            Lost::Taken(None) => f.write_str("something that is no lease stands in its place"),
            Lost::Gone => f.write_str("its lease was removed"),
            Lost::Broken => f.write_str("the store does not work"),
        }
    }
}
