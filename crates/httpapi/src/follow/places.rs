//! The places of followers: a node serves only so many clients that follow logs.

use std::sync::Arc;

use metrics::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::problem::{ProblemDetails, TOO_MANY_FOLLOWERS};

/// The places of the clients that follow logs through a node, whoever owns the partitions.
///
/// They are apart from the places of logs that are read once, which have an end.
#[derive(Debug)]
pub(crate) struct FollowerPlaces {
    free: Arc<Semaphore>,
    most: usize,
    taken: Gauge,
}

/// The place of a follower. It ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct FollowerPlace {
    _permit: OwnedSemaphorePermit,
    taken: Gauge,
}

impl FollowerPlaces {
    pub(crate) fn new(most: usize) -> FollowerPlaces {
        let taken = metrics::gauge!("httpapi_followers");
        // The gauge exists from the beginning.
        taken.increment(0);
        let free = Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        FollowerPlaces { free, most, taken }
    }

    /// Takes a place. Nobody waits for one: followers may stay for days.
    pub(crate) fn take(&self) -> Result<FollowerPlace, ProblemDetails> {
        let permit = Arc::clone(&self.free).try_acquire_owned().map_err(|_| {
            let most = self.most;
            let reason = format!("{most} clients follow logs of this node, which is the limit");
            ProblemDetails::unavailable(TOO_MANY_FOLLOWERS, reason)
        })?;
        self.taken.increment(1);
        Ok(FollowerPlace { _permit: permit, taken: self.taken.clone() })
    }
}

impl Drop for FollowerPlace {
    fn drop(&mut self) {
        self.taken.decrement(1);
    }
}
