//! The environment of a trial.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use clock::{Clock, Instant};
use ielections::{ElectionRow, Elections, Leadership, Lease, Seat, Timing, TtlStore};

use crate::{
    elections::faulty_store::FaultyStore,
    trial::{EarlyEnd, Verdict},
};

/// The context of a trial: its seats, and its way to make nodes.
/// [`Suite`](crate::elections::Suite) makes one for each run of a trial.
#[derive(Debug)]
pub struct ElectionsContext {
    stores: Vec<Arc<dyn TtlStore>>,
    pub(crate) clock: Clock,
    pub(crate) timing: Timing,
    first_seat: u32,
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
        first_seat: u32,
    ) -> ElectionsContext {
        ElectionsContext { stores, clock, timing, first_seat }
    }

    /// Returns the duration of a lease.
    pub(crate) fn lease(&self) -> Duration {
        self.timing.duration
    }

    /// Returns the longest time that a row may exist after its TTL.
    pub(crate) fn expiry_delay(&self) -> Duration {
        self.stores.iter().map(|store| store.expiry_delay()).max().unwrap_or_default()
    }

    /// Returns a new connection of a node to the store, without faults.
    pub(crate) fn store(&self, number: u16) -> FaultyStore {
        let store = Arc::clone(&self.stores[usize::from(number) % self.stores.len()]);
        FaultyStore::new(store, self.first_seat, self.clock.clone())
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

    /// Reads the lease of seat 1.
    pub(crate) async fn lease_of_1(&self) -> Verdict<Lease> {
        let bytes = self.row(ElectionRow::Lease(seat(1))).await?.unwrap_or_default();
        Lease::from_bytes(&bytes)
            .ok_or_else(|| EarlyEnd::failed(format!("no lease, but {bytes:?}, is in seat 1")))
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
    /// Waits for the leadership of one of the seats up to `seats`, for as long as several leases
    /// may last.
    pub(crate) async fn lead_one_of(&self, seats: u32) -> Verdict<Leadership> {
        let patience = 4 * self.elections.budget().failover_bound();
        Ok(self.elections.acquire(seat(seats), self.clock.now() + patience).await?)
    }

    pub(crate) async fn lead(&self) -> Verdict<Leadership> {
        self.lead_one_of(1).await
    }
}

/// Returns the seat with this number. Seats are numbered from 1; 0 is taken for 1.
pub(crate) fn seat(number: u32) -> Seat {
    Seat::new(number).unwrap_or(Seat::FIRST)
}

/// Stops a leadership in order, and releases its lease.
pub(crate) async fn release(leadership: Leadership, deadline: Instant) -> Verdict {
    leadership.stopped(deadline).await?.release().await;
    Ok(())
}
