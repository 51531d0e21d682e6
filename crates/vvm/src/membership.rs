//! What a node says of itself to the other nodes of its cluster, in its member row.
//!
//! Member rows serve balancing and display. Nothing that is safe rests on them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use clock::{Clock, Instant};
use sysvvm::{
    OperatorOrder, OrderId,
    ownership::{Member, MemberId, MemberState, OwnerEpoch, PartitionId, PartitionLoad},
};

use crate::{Node, app::App};

/// The time for which a member row lives. A node writes its row each second.
pub(crate) const MEMBER_TTL: Duration = Duration::from_secs(10);

/// A partition that this node could not start goes to other nodes first for this time.
const REFUSED_FOR: Duration = Duration::from_secs(600);

/// A partition that recovers for longer does not keep the nodes from moving others.
const LONG_RECOVERY: Duration = Duration::from_secs(60);

/// The part of the member row that the node's balancing decides, and the identity of the row.
#[derive(Debug)]
pub(crate) struct Membership {
    id: MemberId,
    heartbeat: AtomicU64,
    wishes: Mutex<Wishes>,
    /// The orders to this node that it has obeyed and that have not expired. The ids have the times
    /// of several clocks, so a later order may have a lower id.
    obeyed: Mutex<BTreeSet<OrderId>>,
}

/// The state of balancing that other nodes must know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    /// Whether the node can own partitions: its applications are open.
    pub(crate) is_ready: bool,
    pub(crate) wants: BTreeMap<PartitionId, OwnerEpoch>,
    /// The starts of partitions on this node.
    pub(crate) starts: BTreeMap<PartitionId, Instant>,
    /// The partitions that this node could not start, and the times.
    pub(crate) refused: BTreeMap<PartitionId, Instant>,
    /// The applications of which another version is deployed.
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
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the orders to this node that it did not return before.
    fn new_orders(&self, orders: &[(OrderId, OperatorOrder)]) -> Vec<OperatorOrder> {
        let mut obeyed = self.obeyed.lock().unwrap_or_else(PoisonError::into_inner);
        obeyed.retain(|known| orders.iter().any(|(id, _)| id == known));
        let to_me = orders.iter().filter(|(_, order)| match *order {
            OperatorOrder::Drain { member } | OperatorOrder::CancelDrain { member } => {
                member == self.id.0
            }
            OperatorOrder::Move { .. } => false,
        });
        to_me.filter(|(id, _)| obeyed.insert(*id)).map(|(_, order)| *order).collect()
    }
}

impl Node {
    /// Obeys the orders to this node, each once.
    pub(crate) fn obey(&self, orders: &[(OrderId, OperatorOrder)]) {
        for order in self.membership().new_orders(orders) {
            match order {
                OperatorOrder::Drain { .. } => self.begin_drain(),
                OperatorOrder::CancelDrain { .. } => self.cancel_drain(),
                OperatorOrder::Move { .. } => {}
            }
        }
    }

    /// What this node says of itself now.
    pub(crate) fn own_member(&self) -> Member {
        let wishes = self.membership().wishes().clone();
        let state = match (wishes.is_ready, self.is_draining()) {
            (_, true) => MemberState::Draining,
            (true, false) => MemberState::Ready,
            (false, false) => MemberState::Starting,
        };
        let loads = self.loads();
        let now = self.clock().now();
        let is_new = |id: &PartitionId| {
            let started = wishes.starts.get(id);
            started.is_some_and(|at| now.saturating_since(*at) < LONG_RECOVERY)
        };
        let mut recovering = loads.iter().filter(|(_, load)| load.status.starts_with(RECOVERING));
        let is_recovering = recovering.any(|(id, _)| is_new(id));
        let numbers = self.apps().iter().filter_map(App::opened_number);
        let is_recent = |at: Instant| now.saturating_since(at) < REFUSED_FOR;
        let refused = wishes.refused.iter().filter(|(_, at)| is_recent(**at));
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

    /// The partitions here that are not ready, or have waiting commands or events to replay.
    fn loads(&self) -> BTreeMap<PartitionId, PartitionLoad> {
        let of_app = |app: &App| {
            let number = app.opened_number();
            let load = move |here: crate::PartitionStatus| {
                let id = PartitionId { app: number?, partition: here.number };
                let waiting = u32::try_from(here.waiting).unwrap_or(u32::MAX);
                let unflushed_events = here.unflushed_events;
                let load = PartitionLoad { status: here.status, waiting, unflushed_events };
                let is_idle = load.is_ready() && waiting == 0 && unflushed_events == 0;
                (!is_idle).then_some((id, load))
            };
            app.partition_statuses().filter_map(load).collect::<Vec<_>>()
        };
        self.apps().iter().flat_map(of_app).collect()
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
        let membership = Membership::new(&ManualClock::new(1).clock());
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
        assert_eq!(membership.new_orders(&[other, drain]), [drain.1]);
        assert_eq!(membership.new_orders(&[cancel, other, drain]), [cancel.1]);
        assert_eq!(membership.new_orders(&[cancel, other, drain]), []);
        // The first order has expired.
        assert_eq!(membership.new_orders(&[cancel]), []);
    }
}
