//! The reason a leadership ended.

use crate::Lease;

/// The reason for which a leadership ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LossReason {
    /// The lease was released: all work has stopped.
    #[error("the lease was released")]
    Released,
    /// The leadership was dropped, or the runtime that renewed the lease was shut down. The lease
    /// is left to expire.
    #[error("the lease is not renewed any more")]
    Dropped,
    /// The task that renews the lease panicked, in the health check or in the store.
    #[error("the task that renews the lease panicked")]
    Panicked,
    /// The lease could not be renewed in time: the store did not answer, or this process stood
    /// still.
    #[error("the lease could not be renewed in time")]
    Expired,
    /// The health check failed.
    #[error("the health check failed")]
    Unhealthy,
    /// Another lease is in the seat; `None` if the bytes in the seat are not a lease.
    #[error("{}", taken_by(.0))]
    Taken(Option<Lease>),
    /// The seat has no lease any more: another program or a person deleted the lease.
    #[error("the lease was deleted by another program")]
    Gone,
    /// The store does not work any more.
    #[error("permanent store error")]
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

fn taken_by(lease: &Option<Lease>) -> String {
    match lease {
        Some(Lease { owner, epoch, .. }) => format!("{owner} took the lease in epoch {epoch}"),
        None => "the seat holds bytes that are not a lease".to_owned(),
    }
}
