//! The reasons for which a leadership ended.

use std::fmt;

use crate::Lease;

/// The reason for which a leadership ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
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
    /// Another lease is in the seat; `None` if the bytes in the seat are not a lease.
    Taken(Option<Lease>),
    /// The seat has no lease any more: another program or a person deleted the lease.
    Gone,
    /// The store does not work any more.
    Broken,
}

impl LossReason {
    /// Returns the name of the reason in metrics.
    pub fn name(self) -> &'static str {
        match self {
            LossReason::Released => "released",
            LossReason::Dropped => "dropped",
            LossReason::Panicked => "panicked",
            LossReason::Expired => "expired",
            LossReason::Unhealthy => "unhealthy",
            LossReason::Taken(_) => "taken",
            LossReason::Gone => "gone",
            LossReason::Broken => "broken",
        }
    }
}

impl std::error::Error for LossReason {}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LossReason::Released => f.write_str("the lease was released"),
            LossReason::Dropped => f.write_str("the lease is not renewed any more"),
            LossReason::Panicked => f.write_str("the task that renews the lease panicked"),
            LossReason::Expired => f.write_str("the lease could not be renewed in time"),
            LossReason::Unhealthy => f.write_str("the health check failed"),
            LossReason::Taken(Some(lease)) => {
                write!(f, "{} took the lease in epoch {}", lease.owner, lease.epoch)
            }
            LossReason::Taken(None) => f.write_str("the seat holds bytes that are not a lease"),
            LossReason::Gone => f.write_str("the lease was deleted by another program"),
            LossReason::Broken => f.write_str("permanent store error"),
        }
    }
}
