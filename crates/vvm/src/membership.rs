//! What a node tells the other nodes of its cluster about itself, in its member row.
//!
//! Member rows serve balancing and display. Safety never depends on them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use base::locks::lock;
use clock::{Clock, Instant};
use sysvvm::{
    OperatorOrder, OrderId,
    ownership::{Member, MemberId, MemberState, OwnerEpoch, PartitionId, PartitionLoad},
};

use crate::{Node, app::App};

/// How long a member row lives. A node writes its row each second.
pub(crate) const MEMBER_TTL: Duration = Duration::from_secs(10);

/// A node remembers for this time that it has obeyed an order. Orders expire much earlier.
const OBEYED_FOR: Duration = Duration::from_secs(600);

/// A partition that recovers for longer does not keep the nodes from moving others.
const LONG_RECOVERY: Duration = Duration::from_secs(60);

/// The part of the member row that the node's balancing decides, and the identity of the row.
#[derive(Debug)]
pub(crate) struct Membership {
    id: MemberId,
    heartbeat: AtomicU64,
    wishes: Mutex<Wishes>,
    /// The orders to this node that it has obeyed, and when it saw them last. The ids have the
    /// times of several clocks, so a later order may have a lower id.
    obeyed: Mutex<BTreeMap<OrderId, Instant>>,
}

/// The state of balancing that other nodes must know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    /// Whether the node can own partitions: its applications are open.
    pub(crate) is_ready: bool,
    pub(crate) wants: BTreeMap<PartitionId, OwnerEpoch>,
    /// The starts of partitions on this node.
    pub(crate) starts: BTreeMap<PartitionId, Instant>,
    /// The partitions that this node could not start. Until these times they go to other nodes
    /// first.
    pub(crate) refused: BTreeMap<PartitionId, Instant>,
    /// The applications that are deployed in another version.
    pub(crate) outdated: BTreeSet<u32>,
}

/// The fields of a member row whose change must be seen at once.
pub(crate) type UrgentFields = (
    (MemberState, Option<u32>, bool),
    BTreeMap<PartitionId, OwnerEpoch>,
    BTreeSet<PartitionId>,
    BTreeSet<u32>,
);

impl Membership {
    pub(crate) fn new(clock: &Clock) -> Membership {
        let id = (u128::from(clock.random()) << 64) | u128::from(clock.random());
        Membership {
            id: MemberId(id),
            heartbeat: AtomicU64::new(0),
            wishes: Mutex::default(),
            obeyed: Mutex::default(),
        }
    }

    pub(crate) fn id(&self) -> MemberId {
        self.id
    }

    /// The heartbeat of the next write. It rises with each call.
    pub(crate) fn next_heartbeat(&self) -> u64 {
        self.heartbeat.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn wishes(&self) -> MutexGuard<'_, Wishes> {
        lock(&self.wishes)
    }

    /// Returns the orders to this node that it did not return before.
    fn new_orders(&self, now: Instant, orders: &[(OrderId, OperatorOrder)]) -> Vec<OperatorOrder> {
        let mut obeyed = lock(&self.obeyed);
        // A plain read may lack an order that the read before had and the next read has again.
        obeyed.retain(|_, at| now.saturating_since(*at) < OBEYED_FOR);
        let to_me = orders.iter().filter(|(_, order)| match *order {
            OperatorOrder::Drain { member } | OperatorOrder::CancelDrain { member } => {
                member == self.id.0
            }
            OperatorOrder::Move { .. } => false,
        });
        to_me.filter(|(id, _)| obeyed.insert(*id, now).is_none()).map(|(_, order)| *order).collect()
    }
}

impl Node {
    /// Obeys the orders to this node, each once. An order to move a partition is not among them:
    /// the owner reads it when it plans.
    pub(crate) fn obey(&self, orders: &[(OrderId, OperatorOrder)]) {
        for order in self.membership().new_orders(self.clock().now(), orders) {
            match order {
                OperatorOrder::Drain { .. } => self.begin_drain(),
                OperatorOrder::CancelDrain { .. } => self.cancel_drain(),
                OperatorOrder::Move { .. } => {}
            }
        }
    }

    /// What this node tells about itself now.
    pub(crate) fn own_member(&self) -> Member {
        let wishes = self.membership().wishes().clone();
        let state = match (wishes.is_ready, self.is_draining()) {
            (_, true) => MemberState::Draining,
            (true, false) => MemberState::Ready,
            (false, false) => MemberState::Starting,
        };
        let loads = self.loads(&wishes.starts);
        let now = self.clock().now();
        let is_new = |id: &PartitionId| {
            let started = wishes.starts.get(id);
            started.is_some_and(|at| now.saturating_since(*at) < LONG_RECOVERY)
        };
        let mut recovering = loads.iter().filter(|(_, load)| load.status.starts_with(RECOVERING));
        let is_recovering = recovering.any(|(id, _)| is_new(id));
        let numbers = self.apps().iter().filter_map(App::opened_number);
        let refused = wishes.refused.iter().filter(|(_, until)| now < **until);
        Member {
            incarnation: self.incarnation(),
            seat: self.seat(),
            cluster: self.cluster_address(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            state,
            apps: numbers.filter(|number| !wishes.outdated.contains(number)).collect(),
            refused: refused.map(|(id, _)| *id).collect(),
            recent_starts: self.recent_starts(),
            is_recovering,
            wants: wishes.wants,
            loads,
            ..Member::new(self.membership().id(), self.advertised())
        }
    }

    /// The partitions of this node that are not ready, or have waiting commands or events to
    /// replay.
    fn loads(
        &self,
        starts: &BTreeMap<PartitionId, Instant>,
    ) -> BTreeMap<PartitionId, PartitionLoad> {
        let mut loads = self.not_running(starts);
        for app in self.apps() {
            let Some(number) = app.opened_number() else { continue };
            for here in app.partition_statuses() {
                let id = PartitionId { app: number, partition: here.number };
                let waiting = u32::try_from(here.waiting).unwrap_or(u32::MAX);
                let unflushed_events = here.unflushed_events;
                let load = PartitionLoad { status: here.status, waiting, unflushed_events };
                if load.is_ready() && waiting == 0 && unflushed_events == 0 {
                    loads.remove(&id);
                } else {
                    loads.insert(id, load);
                }
            }
        }
        loads
    }

    /// The partitions whose rows name this node, as if none of them ran. Others take a partition
    /// without a load for ready.
    fn not_running(
        &self,
        starts: &BTreeMap<PartitionId, Instant>,
    ) -> BTreeMap<PartitionId, PartitionLoad> {
        let (Some(me), Some(seen)) = (self.incarnation(), self.view().last().answer) else {
            return BTreeMap::new();
        };
        let mine = seen
            .owners
            .iter()
            .filter(|(_, row)| row.owner.is_some_and(|owner| owner.incarnation == me));
        let load = |id: &PartitionId| {
            let status = if starts.contains_key(id) { "stopped" } else { "starting" };
            PartitionLoad { status: status.to_owned(), ..PartitionLoad::default() }
        };
        mine.map(|(&id, _)| (id, load(&id))).collect()
    }
}

/// The beginning of the status of a partition that recovers.
const RECOVERING: &str = "recovering";

/// Returns the fields of a member whose change is written at once.
pub(crate) fn urgent(member: &Member) -> UrgentFields {
    let Member { state, seat, is_recovering, wants, refused, apps, .. } = member.clone();
    ((state, seat, is_recovering), wants, refused, apps)
}

#[cfg(test)]
mod tests {
    use clock::{ManualClock, WallTime};

    use super::*;

    /// The clock of the node that wrote the second order was behind. The node skipped the order,
    /// because its time was before that of the first one.
    #[test]
    fn each_order_is_obeyed_once_whatever_the_clock_of_its_node_says() {
        let clock = ManualClock::new(1).clock();
        let membership = Membership::new(&clock);
        let member = membership.id().0;
        let drain = (
            OrderId { at: WallTime::from_nanos(9_000), random: 1 },
            OperatorOrder::Drain { member },
        );
        let cancel = (
            OrderId { at: WallTime::from_nanos(1_000), random: 2 },
            OperatorOrder::CancelDrain { member },
        );
        let other = (
            OrderId { at: WallTime::from_nanos(2_000), random: 3 },
            OperatorOrder::Drain { member: !member },
        );
        let new = |orders: &[_]| membership.new_orders(clock.now(), orders);
        assert_eq!(new(&[other, drain]), [drain.1]);
        assert_eq!(new(&[cancel, other, drain]), [cancel.1]);
        assert_eq!(new(&[cancel, other, drain]), []);
    }

    /// One plain read lacked the order to drain, and the next read had it again. The node had
    /// cancelled the drain, and drained once more.
    #[test]
    fn an_order_that_one_read_lacks_is_not_obeyed_again() {
        let clock = ManualClock::new(1);
        let membership = Membership::new(&clock.clock());
        let member = membership.id().0;
        let order = |random, order| (OrderId { at: WallTime::from_nanos(1_000), random }, order);
        let drain = order(1, OperatorOrder::Drain { member });
        let cancel = order(2, OperatorOrder::CancelDrain { member });
        let now = clock.clock().now();
        assert_eq!(membership.new_orders(now, &[drain]), [drain.1]);
        assert_eq!(membership.new_orders(now, &[cancel]), [cancel.1]);
        assert_eq!(membership.new_orders(now + OperatorOrder::TTL, &[drain, cancel]), []);
        assert!(OBEYED_FOR > 2 * OperatorOrder::TTL);
        membership.new_orders(now + OperatorOrder::TTL + OBEYED_FOR, &[]);
        assert!(membership.obeyed.lock().unwrap().is_empty(), "the ids are kept for ever");
    }
}
