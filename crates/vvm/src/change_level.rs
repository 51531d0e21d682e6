//! The change of an application's trust level, while no node works.
//!
//! Invariant: the new level begins only after every write under the old level has landed or is
//! fenced. The call holds all seats, so no node works. If the change is from or to level 2, the
//! call then waits until late writes have landed. Finally it takes all partitions, so each later
//! owner has a higher epoch than every earlier one.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use clock::{Clock, Instant};
use eventlog::{Deployment, DeploymentError, Epoch, LevelChange, TrustLevel};
use futures::future::join_all;
use ielections::{
    AcquireError, Elections, GiveUpReason, InvalidTiming, Leadership, Lease, LossReason,
    ObservedLease, ReleaseOutcome, Seat, TtlStore,
};
use istorage::{KeyspaceName, StorageDriver};
use processor::bytes::Bytes;
use sysvvm::{AppName, OpenedApp, System};
use tracing::warn;

use crate::{InvalidNodeSettings, NodeSettings};

/// The pause between two looks at the leases of others.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The most time for a look.
const LOOK_WITHIN: Duration = Duration::from_secs(2);

/// If a lease ends this much later than it seemed when it was first seen, it was renewed. Storages
/// round the remaining time to seconds.
const RENEWED_BY: Duration = Duration::from_millis(1_500);

/// A step of a change, for a caller that shows the progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelStep {
    /// The call waits until the leases of nodes that were killed have expired.
    WaitsForLeases {
        /// The longest time that it waits.
        at_most: Duration,
    },
    /// The call holds all seats, and waits until late writes have landed.
    WaitsForLateWrites(Duration),
}

/// The result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangedLevel {
    /// The level before.
    pub from: TrustLevel,
    /// The epoch that all partitions have now; `None` if the application had the level already.
    pub epoch: Option<Epoch>,
    /// Level 2 has written only under epochs below this one; 0 if the level never was 2. While the
    /// level is 2, the bound says nothing.
    pub stray_before: Epoch,
}

/// Why the level was not changed. After an error of the storage it may have changed: look at it, or
/// repeat the call.
#[derive(Debug, thiserror::Error)]
pub enum ChangeLevelError {
    /// The storage has no keyspace of this name. Nothing was made.
    #[error("the keyspace `{0}` does not exist: no node ever used this storage under this name")]
    NoKeyspace(KeyspaceName),
    /// A node works. Stop it.
    #[error("the node at {owner} works, and holds seat {seat}: stop all nodes")]
    SeatHeld {
        /// The seat.
        seat: Seat,
        /// The address of the node.
        owner: SocketAddr,
    },
    /// Seats did not become free, although no node renewed its lease: another such call works, or
    /// another program wrote a lease.
    #[error("not all seats became free: repeat the command when no node and no other command runs")]
    SeatsTaken,
    /// The storage does not let the call take the seats.
    #[error("the seats cannot be taken")]
    NotAcquired(#[source] AcquireError),
    /// The call stood still for so long that the lease of a seat expired.
    #[error("the lease of a seat was lost: {0}")]
    LeaseLost(LossReason),
    /// The lease does not fit the new level.
    #[error(transparent)]
    Settings(#[from] InvalidNodeSettings),
    /// The parts of the lease do not fit.
    #[error(transparent)]
    Lease(#[from] InvalidTiming),
    /// The deployment of the application.
    #[error(transparent)]
    Deployment(#[from] DeploymentError),
    /// The system keyspace.
    #[error(transparent)]
    System(#[from] sysvvm::Error),
}

/// Changes the trust level of an application. No node may work: the call takes all seats, and gives
/// them back at the end. Nodes that start afterwards find the new level.
///
/// A call that is killed may or may not have changed the level. It leaves leases, which expire, and
/// perhaps a [change that has begun](Deployment::changing_to), which the next node or call cancels.
///
/// The lease in `settings` must be long enough for the new level.
///
/// # Errors
/// The reason. Only after an error of the storage may the level have changed.
///
/// # Cancel safety
/// If the call is dropped, its leases stay until they expire.
pub async fn change_level(
    driver: Arc<dyn StorageDriver>,
    clock: Clock,
    settings: &NodeSettings,
    app: &AppName,
    to: TrustLevel,
    tell: impl Fn(LevelStep),
) -> Result<ChangedLevel, ChangeLevelError> {
    let soon = || clock.now() + settings.open_within;
    let name = settings.system.clone();
    // Opening the system keyspace would make it.
    if driver.open(&name, soon()).await.map_err(sysvvm::Error::from)?.is_none() {
        return Err(ChangeLevelError::NoKeyspace(name));
    }
    let system = System::open(driver, name, clock.clone(), soon()).await?;
    let opened = system.open_app(app, soon()).await?;
    let stored = Deployment::stored(&opened.storage, soon()).await?;
    let stored = stored.ok_or(DeploymentError::NotDeployed)?;
    let from = stored.level;
    let levels = [from, to];
    let late_write = opened.storage.capabilities().late_write;
    let lease = settings.lease_for(levels, late_write)?;
    if from == to && stored.changing_to().is_none() {
        return Ok(ChangedLevel { from, epoch: None, stray_before: stored.stray_before });
    }
    system.fix_seats(settings.seats, soon()).await?;
    let store = Arc::new(system.elections());
    let elections =
        Elections::new(Arc::clone(&store) as _, clock.clone(), settings.advertised, lease)?;
    let mut seats = Vec::new();
    let changed = async {
        hold_all(&elections, &*store, &clock, settings, &mut seats, &tell).await?;
        // The change begins before the wait. Otherwise the call could stand still after the wait, a
        // node could start, work and be killed, and nothing would wait for its late writes.
        let change = LevelChange::begin(to, &opened.storage, &clock, soon()).await?;
        // Another call may have changed the level since it was read.
        if [change.from(), to].contains(&TrustLevel::Two) && late_write > Duration::ZERO {
            tell(LevelStep::WaitsForLateWrites(late_write));
            clock.sleep(late_write).await;
        }
        check_held(&seats)?;
        finish(change, &system, &opened, &clock, soon()).await
    };
    let changed = changed.await;
    release(seats, clock.now() + settings.stop_within).await;
    changed
}

/// Finishes a change. The partitions are taken between the two writes of the change: a node that
/// starts a partition has taken it and then reads the deployment. Such a node meets the change that
/// has begun, and cancels it, or its partition is noticed here, or it reads the new level.
async fn finish(
    change: LevelChange,
    system: &System,
    opened: &OpenedApp,
    clock: &Clock,
    deadline: Instant,
) -> Result<ChangedLevel, ChangeLevelError> {
    let (from, entry) = (change.from(), &opened.entry);
    let epoch = system.owners().free_all(entry.number, entry.partitions, deadline).await?;
    let epoch = Epoch::from(epoch);
    let finished = change.finish(epoch, &opened.storage, clock, deadline).await?;
    Ok(ChangedLevel { from, epoch: Some(epoch), stray_before: finished.stray_before })
}

/// Takes all seats. The leases of nodes that were killed expire, and a lease that is renewed
/// belongs to a node that lives.
async fn hold_all(
    elections: &Elections,
    store: &dyn TtlStore,
    clock: &Clock,
    settings: &NodeSettings,
    held: &mut Vec<Leadership>,
    tell: impl Fn(LevelStep),
) -> Result<(), ChangeLevelError> {
    let at_most = longest_wait(elections, store, clock).await;
    let until = clock.now() + at_most;
    let mut living = Living { own: settings.advertised, seen: BTreeMap::new(), has_told: false };
    while held.len() < settings.seats.get() as usize {
        let acquire = elections.acquire(Seat::from(settings.seats), until);
        let ours = held.iter().map(Leadership::seat).collect();
        let living =
            living.found(store, clock, ours, || tell(LevelStep::WaitsForLeases { at_most }));
        tokio::select! {
            leadership = acquire => held.push(leadership.map_err(not_acquired)?),
            (seat, owner) = living => return Err(ChangeLevelError::SeatHeld { seat, owner }),
        }
        check_held(held)?;
    }
    Ok(())
}

/// Returns the time until the leases of nodes that were killed have expired. The leases may be
/// longer than those of this call.
async fn longest_wait(elections: &Elections, store: &dyn TtlStore, clock: &Clock) -> Duration {
    let leases = store.leases(clock.now() + LOOK_WITHIN).await.unwrap_or_default();
    // A row that does not expire is never free.
    let left = leases.iter().map(|lease| lease.left).filter(|left| *left < Duration::MAX).max();
    let own = elections.budget().timing().duration;
    elections.budget().failover_bound() + left.unwrap_or_default().saturating_sub(own)
}

fn not_acquired(why: AcquireError) -> ChangeLevelError {
    match why {
        AcquireError::GaveUp(GiveUpReason::Waited) => ChangeLevelError::SeatsTaken,
        why => ChangeLevelError::NotAcquired(why),
    }
}

/// The leases of others, as they were seen first, and when they seemed to end.
struct Living {
    /// The address in the leases of this call. It may be that of a node, too.
    own: SocketAddr,
    seen: BTreeMap<Seat, (Bytes, Instant)>,
    has_told: bool,
}

impl Living {
    /// Returns a seat that a living node holds, and the address of the node. Waits for ever if
    /// there is none. A look that fails finds nothing.
    ///
    /// # Cancel safety
    /// Safe: the next call goes on.
    async fn found(
        &mut self,
        store: &dyn TtlStore,
        clock: &Clock,
        ours: BTreeSet<Seat>,
        tell: impl Fn(),
    ) -> (Seat, SocketAddr) {
        loop {
            let looked = store.leases(clock.now() + LOOK_WITHIN).await.unwrap_or_default();
            let others: Vec<_> =
                looked.into_iter().filter(|lease| !ours.contains(&lease.seat)).collect();
            if !others.is_empty() && !self.has_told {
                self.has_told = true;
                tell();
            }
            for lease in others {
                if let Some(living) = self.note(clock.now(), lease) {
                    return living;
                }
            }
            clock.sleep(LOOK_EVERY).await;
        }
    }

    /// Notes a lease. Returns its owner if the lease differs from the one that was seen first, or
    /// was renewed since. A different lease with the address of this call is one of its own
    /// attempts.
    fn note(&mut self, now: Instant, lease: ObservedLease) -> Option<(Seat, SocketAddr)> {
        let ObservedLease { seat, value, left } = lease;
        let ends = now + left;
        let (first, first_end) = self.seen.entry(seat).or_insert_with(|| (value.clone(), ends));
        let owner = Lease::from_bytes(&value)?.owner;
        let is_of_living = match *first == value {
            true => ends > *first_end + RENEWED_BY,
            false => owner != self.own,
        };
        is_of_living.then_some((seat, owner))
    }
}

fn check_held(seats: &[Leadership]) -> Result<(), ChangeLevelError> {
    match seats.iter().find_map(Leadership::lost) {
        Some(lost) => Err(ChangeLevelError::LeaseLost(lost)),
        None => Ok(()),
    }
}

/// Gives the seats back. A seat that cannot be given back is free when its lease has expired.
async fn release(seats: Vec<Leadership>, deadline: Instant) {
    let release = |seat: Leadership| async move {
        let number = seat.seat();
        let released = match seat.stopped(deadline).await {
            Ok(stopped) => stopped.release().await == ReleaseOutcome::LeaseGone,
            Err(_) => false,
        };
        if !released {
            warn!(seat = %number, "seat not given back, and left to expire");
        }
    };
    join_all(seats.into_iter().map(release)).await;
}

#[cfg(test)]
mod tests {
    use clock::ManualClock;
    use ielections::{Epoch, Incarnation};

    use super::*;

    #[test]
    fn a_lease_that_is_renewed_or_new_belongs_to_a_living_node() {
        let start = ManualClock::new(0).clock().now();
        let (node, own) = ("10.0.0.5:80".parse().unwrap(), "10.0.0.6:80".parse().unwrap());
        let mut living = Living { own, seen: BTreeMap::new(), has_told: false };
        let mut note = |at, seat, (owner, epoch), left| {
            let epoch = Epoch(epoch);
            let value = Lease { owner, incarnation: Incarnation(7), epoch }.to_bytes();
            let (seat, left) = (Seat::new(seat).unwrap(), Duration::from_secs(left));
            living.note(start + Duration::from_millis(at), ObservedLease { seat, value, left })
        };
        // The leases of dead nodes run out. Their time is rounded to seconds.
        for (at, left) in [(0, 9), (500, 9), (1_000, 9), (1_500, 8), (2_000, 8), (2_500, 7)] {
            for (seat, owner) in [(1, node), (2, node), (3, own), (4, node)] {
                assert_eq!(note(at, seat, (owner, 1), left), None);
            }
        }
        let found = |seat, owner| Some((Seat::new(seat).unwrap(), owner));
        assert_eq!(note(3_000, 1, (node, 1), 8), found(1, node), "it is renewed");
        assert_eq!(note(3_000, 2, (node, 2), 6), found(2, node), "it is new");
        assert_eq!(note(3_000, 3, (own, 1), 8), found(3, own), "a node has the same address");
        // The call itself takes the seat. Its lease was taken for that of a living node.
        assert_eq!(note(3_000, 4, (own, 2), 9), None);
    }
}
