//! Who leads, for whoever wants to know it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use clock::{Clock, Instant};

use crate::{Lease, Slot, StoreError, TtlStore, budget::LOOK_EVERY_MIN};

/// Who leads which slot. A slot without a leader is not in it, nor one whose row is no lease.
pub type Leaders = BTreeMap<Slot, Lease>;

/// Asks who leads, and waits for changes. It takes part in nothing: it only reads, and what it reads may be somewhat
/// outdated. Whoever must know for sure compares epochs where it writes.
#[derive(Debug)]
pub struct Observer {
    store: Arc<dyn TtlStore>,
    clock: Clock,
    call_timeout: Duration,
    seen: Option<Leaders>,
    look_at: Instant,
}

impl Observer {
    /// Over a store; each read may take as long as `call_timeout`.
    pub fn new(store: Arc<dyn TtlStore>, clock: Clock, call_timeout: Duration) -> Observer {
        let look_at = clock.now();
        Observer { store, clock, call_timeout, seen: None, look_at }
    }

    /// Whose leases the store has. One of them may be of a node that only tries to lead.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn leaders(&self) -> Result<Leaders, StoreError> {
        let deadline = self.clock.now() + self.call_timeout;
        let leases = self.clock.timeout_at(deadline, self.store.leases(deadline)).await;
        let leases = leases.map_err(|late| StoreError::Unavailable(Box::new(late)))??;
        let lease = |seen: &crate::Seen| Some((seen.slot, Lease::from_bytes(&seen.value)?));
        Ok(leases.iter().filter_map(lease).collect())
    }

    /// Waits until other nodes lead than those that it told last; the first time it tells who leads. It looks five times a second
    /// at most, so a change that is undone at once may go unseen.
    ///
    /// # Errors
    /// If the store does not answer. The next call goes on.
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
