//! The environment of a trial.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use clock::{Clock, Instant};

use super::{
    failure::{Failure, Verdict},
    shifted::Shifted,
    unruly::Unruly,
};
use crate::{Elections, Leadership, Lease, Row, Slot, Timing, TtlStore};

/// The slots of a trial, and its way to make nodes.
#[derive(Debug)]
pub(super) struct Context {
    stores: Vec<Arc<dyn TtlStore>>,
    pub(super) clock: Clock,
    pub(super) timing: Timing,
    first_slot: u32,
}

/// A node, and its connection to the store.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) elections: Elections,
    pub(super) store: Arc<Unruly>,
    clock: Clock,
}

impl Context {
    pub(super) fn new(
        stores: Vec<Arc<dyn TtlStore>>,
        clock: Clock,
        timing: Timing,
        first_slot: u32,
    ) -> Context {
        Context { stores, clock, timing, first_slot }
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
    pub(super) fn store(&self, number: u16) -> Shifted {
        let store = Arc::clone(&self.stores[usize::from(number) % self.stores.len()]);
        Shifted { store, first: self.first_slot }
    }

    /// Makes a node. Its number is its address.
    pub(super) fn node(&self, number: u16) -> Verdict<Node> {
        self.node_with(number, |elections| elections)
    }

    pub(super) fn node_with(
        &self,
        number: u16,
        with: impl FnOnce(Elections) -> Elections,
    ) -> Verdict<Node> {
        let store = Arc::new(Unruly::new(self.store(number), self.clock.clone()));
        let owner = SocketAddr::from(([10, 0, 0, 1], number));
        let elections =
            Elections::new(Arc::clone(&store) as _, self.clock.clone(), owner, self.timing)?;
        Ok(Node { elections: with(elections), store, clock: self.clock.clone() })
    }

    /// Reads a row.
    pub(super) async fn row(&self, row: Row) -> Verdict<Option<Bytes>> {
        Ok(self.store(0).get(row, self.soon()).await?)
    }

    /// Reads the lease of slot 1.
    pub(super) async fn lease_of_1(&self) -> Verdict<Lease> {
        let bytes = self.row(Row::Lease(slot(1))).await?.unwrap_or_default();
        Lease::from_bytes(&bytes)
            .ok_or_else(|| Failure::new(format!("no lease, but {bytes:?}, is in slot 1")))
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
    ) -> Verdict {
        let end = self.clock.now() + within;
        while !holds() {
            if self.clock.now() >= end {
                return Err(Failure::new(format!("{what}: not within {within:?}")));
            }
            self.pass(Duration::from_millis(2)).await;
        }
        Ok(())
    }
}

impl Node {
    /// Waits for the leadership of one of the slots up to `slots`, for as long as several leases
    /// may last.
    pub(super) async fn lead_one_of(&self, slots: u32) -> Verdict<Leadership> {
        let patience = 4 * self.elections.budget().failover_bound();
        Ok(self.elections.acquire(slot(slots), self.clock.now() + patience).await?)
    }

    pub(super) async fn lead(&self) -> Verdict<Leadership> {
        self.lead_one_of(1).await
    }
}

/// Returns the slot with this number. Slots are numbered from 1; 0 is taken for 1.
pub(super) fn slot(number: u32) -> Slot {
    Slot::new(number).unwrap_or(Slot::FIRST)
}

/// Stops a leadership in order, and releases its lease.
pub(super) async fn release(leadership: Leadership, deadline: Instant) -> Verdict {
    leadership.stopped(deadline).await?.release().await;
    Ok(())
}
