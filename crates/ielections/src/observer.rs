//! An observer of the leaders of all seats.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use clock::{Clock, Instant};

use crate::{Lease, Seat, StoreError, TtlStore, budget::LOOK_EVERY_MIN};

/// The leader of each seat. Seats without a leader are absent, and so are seats with a row that is
/// not a lease.
pub type Leaders = BTreeMap<Seat, Lease>;

/// Reads the leaders of all seats, and waits for changes.
///
/// An observer only reads, and competes for no seat. Its answers may be slightly outdated. A caller
/// that needs certainty compares epochs in its own writes.
#[derive(Debug)]
pub struct Observer {
    store: Arc<dyn TtlStore>,
    clock: Clock,
    call_timeout: Duration,
    seen: Option<Leaders>,
    look_at: Instant,
}

impl Observer {
    /// Makes an observer of a store. Each read may take up to `call_timeout`.
    pub fn new(store: Arc<dyn TtlStore>, clock: Clock, call_timeout: Duration) -> Observer {
        let look_at = clock.now();
        Observer { store, clock, call_timeout, seen: None, look_at }
    }

    /// Returns the leases in the store. A lease may belong to a node that only tries to lead.
    ///
    /// # Errors
    /// Fails if the store does not answer.
    pub async fn leaders(&self) -> Result<Leaders, StoreError> {
        let deadline = self.clock.now() + self.call_timeout;
        let leases = self.clock.timeout_at(deadline, self.store.leases(deadline)).await;
        let leases = leases.map_err(|late| StoreError::Unavailable(Box::new(late)))??;
        let lease =
            |seen: &crate::ObservedLease| Some((seen.seat, Lease::from_bytes(&seen.value)?));
        Ok(leases.iter().filter_map(lease).collect())
    }

    /// Waits until the leaders differ from those of the last call. The first call returns the
    /// leaders at once.
    ///
    /// The observer looks at most five times a second. So a change that is undone at once may be
    /// missed.
    ///
    /// # Errors
    /// Fails if the store does not answer. The next call continues.
    ///
    /// # Cancel safety
    /// Safe: nothing is lost.
    pub async fn changed(&mut self) -> Result<&Leaders, StoreError> {
        loop {
            self.clock.sleep_until(self.look_at).await;
            self.look_at = self.clock.now() + LOOK_EVERY_MIN;
            let leaders = self.leaders().await?;
            if self.seen.as_ref() != Some(&leaders) {
                return Ok(self.seen.insert(leaders));
            }
        }
    }
}
