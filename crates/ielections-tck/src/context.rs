//! The environment of a trial.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use clock::{Clock, Instant};
use ielections::{ElectionRow, Elections, Leadership, Lease, Slot, Timing, TtlStore};
use trialkit::{EarlyEnd, Verdict};

use crate::faulty_store::FaultyStore;

/// The number of slots of each trial.
pub(crate) const SLOTS_PER_TRIAL: u32 = 16;

/// The context of a trial: its slots, and its way to make nodes. [`Suite`](crate::Suite) makes one
/// for each run of a trial.
#[derive(Debug)]
pub struct ElectionsContext {
    stores: Vec<Arc<dyn TtlStore>>,
    pub(crate) clock: Clock,
    pub(crate) timing: Timing,
    first_slot: u32,
}

/// A node, and its connection to the store.
#[derive(Debug)]
pub(crate) struct TrialNode {
    pub(crate) elections: Elections,
    pub(crate) store: Arc<FaultyStore>,
    clock: Clock,
}

impl ElectionsContext {
    pub(crate) fn new(
        stores: Vec<Arc<dyn TtlStore>>,
        clock: Clock,
        timing: Timing,
        first_slot: u32,
    ) -> ElectionsContext {
        ElectionsContext { stores, clock, timing, first_slot }
    }

    /// Returns the duration of a lease.
    pub(crate) fn lease(&self) -> Duration {
        self.timing.duration
    }

    /// Returns the longest time for which a row may exist after its TTL.
    pub(crate) fn expiry_delay(&self) -> Duration {
        self.stores.iter().map(|store| store.expiry_delay()).max().unwrap_or_default()
    }

    /// Returns a new connection of a node to the store, without faults.
    pub(crate) fn store(&self, number: u16) -> FaultyStore {
        let store = Arc::clone(&self.stores[usize::from(number) % self.stores.len()]);
        FaultyStore::new(store, self.first_slot, self.clock.clone())
    }

    /// Makes a node. Its number is its address.
    pub(crate) fn node(&self, number: u16) -> Verdict<TrialNode> {
        self.node_with(number, |elections| elections)
    }

    pub(crate) fn node_with(
        &self,
        number: u16,
        with: impl FnOnce(Elections) -> Elections,
    ) -> Verdict<TrialNode> {
        let store = Arc::new(self.store(number));
        let owner = SocketAddr::from(([10, 0, 0, 1], number));
        let elections =
            Elections::new(Arc::clone(&store) as _, self.clock.clone(), owner, self.timing)?;
        Ok(TrialNode { elections: with(elections), store, clock: self.clock.clone() })
    }

    /// Reads a row.
    pub(crate) async fn row(&self, row: ElectionRow) -> Verdict<Option<Bytes>> {
        Ok(self.store(0).get(row, self.soon()).await?)
    }

    /// Reads the lease of slot 1.
    pub(crate) async fn lease_of_1(&self) -> Verdict<Lease> {
        let bytes = self.row(ElectionRow::Lease(slot(1))).await?.unwrap_or_default();
        Lease::from_bytes(&bytes)
            .ok_or_else(|| EarlyEnd::failed(format!("no lease, but {bytes:?}, is in slot 1")))
    }

    /// Returns a deadline for calls that must succeed.
    pub(crate) fn soon(&self) -> Instant {
        self.clock.now() + self.lease()
    }

    pub(crate) async fn pass(&self, time: Duration) {
        self.clock.sleep(time).await;
    }

    /// Waits until a condition holds.
    ///
    /// # Errors
    /// Fails if the condition does not hold within the given time.
    pub(crate) async fn eventually(
        &self,
        within: Duration,
        what: &str,
        holds: impl Fn() -> bool,
    ) -> Verdict {
        let end = self.clock.now() + within;
        while !holds() {
            if self.clock.now() >= end {
                return Err(EarlyEnd::failed(format!("{what}: not within {within:?}")));
            }
            self.pass(Duration::from_millis(2)).await;
        }
        Ok(())
    }
}

impl TrialNode {
    /// Waits for the leadership of one of the slots up to `slots`, for as long as several leases
    /// may last.
    pub(crate) async fn lead_one_of(&self, slots: u32) -> Verdict<Leadership> {
        let patience = 4 * self.elections.budget().failover_bound();
        Ok(self.elections.acquire(slot(slots), self.clock.now() + patience).await?)
    }

    pub(crate) async fn lead(&self) -> Verdict<Leadership> {
        self.lead_one_of(1).await
    }
}

/// Returns the slot with this number. Slots are numbered from 1; 0 is taken for 1.
pub(crate) fn slot(number: u32) -> Slot {
    Slot::new(number).unwrap_or(Slot::FIRST)
}

/// Stops a leadership in order, and releases its lease.
pub(crate) async fn release(leadership: Leadership, deadline: Instant) -> Verdict {
    leadership.stopped(deadline).await?.release().await;
    Ok(())
}
