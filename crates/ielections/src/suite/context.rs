//! The environment of a trial.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use clock::{Clock, Instant};

use super::{
    failure::{TrialFailure, TrialResult},
    faulty_store::FaultyStore,
    shifted_store::ShiftedStore,
};
use crate::{ElectionRow, Elections, Leadership, Lease, Slot, Timing, TtlStore};

/// The slots of a trial, and its way to make nodes.
#[derive(Debug)]
pub(super) struct TrialContext {
    stores: Vec<Arc<dyn TtlStore>>,
    pub(super) clock: Clock,
    pub(super) timing: Timing,
    first_slot: u32,
}

/// A node, and its connection to the store.
#[derive(Debug)]
pub(super) struct TrialNode {
    pub(super) elections: Elections,
    pub(super) store: Arc<FaultyStore>,
    clock: Clock,
}

impl TrialContext {
    pub(super) fn new(
        stores: Vec<Arc<dyn TtlStore>>,
        clock: Clock,
        timing: Timing,
        first_slot: u32,
    ) -> TrialContext {
        TrialContext { stores, clock, timing, first_slot }
    }

    /// Returns the duration of a lease.
    pub(super) fn lease(&self) -> Duration {
        self.timing.duration
    }

    /// Returns the longest time for which a row may exist after its TTL.
    pub(super) fn expiry_delay(&self) -> Duration {
        self.stores.iter().map(|store| store.expiry_delay()).max().unwrap_or_default()
    }

    /// Returns the connection of a node to the store, without faults.
    pub(super) fn store(&self, number: u16) -> ShiftedStore {
        let store = Arc::clone(&self.stores[usize::from(number) % self.stores.len()]);
        ShiftedStore { store, first: self.first_slot }
    }

    /// Makes a node. Its number is its address.
    pub(super) fn node(&self, number: u16) -> TrialResult<TrialNode> {
        self.node_with(number, |elections| elections)
    }

    pub(super) fn node_with(
        &self,
        number: u16,
        with: impl FnOnce(Elections) -> Elections,
    ) -> TrialResult<TrialNode> {
        let store = Arc::new(FaultyStore::new(self.store(number), self.clock.clone()));
        let owner = SocketAddr::from(([10, 0, 0, 1], number));
        let elections =
            Elections::new(Arc::clone(&store) as _, self.clock.clone(), owner, self.timing)?;
        Ok(TrialNode { elections: with(elections), store, clock: self.clock.clone() })
    }

    /// Reads a row.
    pub(super) async fn row(&self, row: ElectionRow) -> TrialResult<Option<Bytes>> {
        Ok(self.store(0).get(row, self.soon()).await?)
    }

    /// Reads the lease of slot 1.
    pub(super) async fn lease_of_1(&self) -> TrialResult<Lease> {
        let bytes = self.row(ElectionRow::Lease(slot(1))).await?.unwrap_or_default();
        Lease::from_bytes(&bytes)
            .ok_or_else(|| TrialFailure::new(format!("no lease, but {bytes:?}, is in slot 1")))
    }

    /// Returns a deadline for calls that must succeed.
    pub(super) fn soon(&self) -> Instant {
        self.clock.now() + self.lease()
    }

    pub(super) async fn pass(&self, time: Duration) {
        self.clock.sleep(time).await;
    }

    /// Waits until a condition holds.
    ///
    /// # Errors
    /// Fails if the condition does not hold within the given time.
    pub(super) async fn eventually(
        &self,
        within: Duration,
        what: &str,
        holds: impl Fn() -> bool,
    ) -> TrialResult {
        let end = self.clock.now() + within;
        while !holds() {
            if self.clock.now() >= end {
                return Err(TrialFailure::new(format!("{what}: not within {within:?}")));
            }
            self.pass(Duration::from_millis(2)).await;
        }
        Ok(())
    }
}

impl TrialNode {
    /// Waits for the leadership of one of the slots up to `slots`, for as long as several leases
    /// may last.
    pub(super) async fn lead_one_of(&self, slots: u32) -> TrialResult<Leadership> {
        let patience = 4 * self.elections.budget().failover_bound();
        Ok(self.elections.acquire(slot(slots), self.clock.now() + patience).await?)
    }

    pub(super) async fn lead(&self) -> TrialResult<Leadership> {
        self.lead_one_of(1).await
    }
}

/// Returns the slot with this number. Slots are numbered from 1; 0 is taken for 1.
pub(super) fn slot(number: u32) -> Slot {
    Slot::new(number).unwrap_or(Slot::FIRST)
}

/// Stops a leadership in order, and releases its lease.
pub(super) async fn release(leadership: Leadership, deadline: Instant) -> TrialResult {
    leadership.stopped(deadline).await?.release().await;
    Ok(())
}
