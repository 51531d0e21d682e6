//! The reasons for which a leadership ended.

use std::fmt;

use crate::Lease;

/// The reason for which a leadership ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The lease was released: all work has stopped.
    Released,
    /// The leadership was dropped, or the runtime that renewed the lease was shut down. The lease
    /// is left to expire.
    Dropped,
    /// The task that renews the lease panicked, in the health check or in the store.
    Panicked,
    /// The lease could not be renewed in time: the store did not answer, or this process stood
    /// still.
    Expired,
    /// The health check failed.
    Unhealthy,
    /// Another lease is in the slot; `None` if the bytes in the slot are not a lease.
    Taken(Option<Lease>),
    /// The slot has no lease any more: another program or a person deleted the lease.
    Gone,
    /// The store does not work any more.
    Broken,
}

impl Lost {
    /// Returns the name of the reason in metrics.
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
