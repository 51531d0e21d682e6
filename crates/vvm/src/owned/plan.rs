//! The wishes of the node: what it takes, asks for and gives up.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use clock::Instant;
use sysvvm::{
    OperatorOrder,
    ownership::{
        ClusterSight, FRESH, GiveUp, MemberId, MemberState, MoveOrder, OwnerEpoch, PartitionId,
    },
};

use super::OwnedPartitions;
use crate::{
    cluster_view::ClusterSeen,
    drain::{ANNOUNCED_FOR, DrainStage},
};

/// The pause between two attempts to take the same partitions.
const TAKE_EVERY: Duration = Duration::from_secs(1);

impl OwnedPartitions<'_> {
    /// Plans by the last view of the cluster. Returns whether the node has nothing left to take or
    /// to start, and whether the engine got new instructions.
    pub(super) fn plan(&mut self, now: Instant) -> (bool, bool) {
        let node = self.deployer.node;
        let drain = node.drain().stage();
        let (Some(seen), Some(looked)) = (node.view().last().answer, self.looked) else {
            return (false, false);
        };
        let own = node.own_member();
        let partitions: BTreeSet<_> = self.available().collect();
        let orders = self.orders(now, &seen);
        if drain.is_hurried {
            self.balancer.hurry();
        }
        let read_at = seen.sent.min(looked);
        let giving = self.engine.giving();
        let sight = ClusterSight {
            partitions: &partitions,
            rows: self.engine.rows(),
            giving: &giving,
            living: &seen.living,
            members: &seen.members,
            orders: &orders,
            is_paused: seen.is_paused,
            read_at,
        };
        let plan = self.balancer.plan(now, &sight, &own);
        let awaited = self.awaited(&seen, &orders, own.id);
        self.expected.note(now, plan.wants.iter().map(|(&id, &epoch)| (id, epoch)).chain(awaited));
        self.publish(plan.wants);
        let has_told = self.take(now, &plan.take);
        self.give_up(now, &plan.give_up, drain);
        let is_sighted = now.saturating_since(read_at) <= FRESH
            && own.incarnation.is_some_and(|me| seen.living.contains(&me));
        if drain.begun.is_some() {
            self.note_drain(drain, &plan.give_up, is_sighted);
        }
        (is_sighted && plan.take.is_empty() && self.has_started_its_own(&partitions), has_told)
    }

    fn available(&self) -> impl Iterator<Item = PartitionId> {
        self.all.keys().copied().filter(|id| !self.blocked.contains(id))
    }

    /// The moves that operators have ordered.
    fn orders(&mut self, now: Instant, seen: &ClusterSeen) -> Vec<MoveOrder> {
        let order = |(_, order): &_| match *order {
            OperatorOrder::Move { partition, epoch, to } => {
                Some(MoveOrder { partition, epoch, to: MemberId(to) })
            }
            OperatorOrder::Drain { .. } | OperatorOrder::CancelDrain { .. } => None,
        };
        let orders: Vec<_> = seen.orders.iter().filter_map(order).collect();
        let key = |order: &MoveOrder| (order.partition, order.epoch);
        self.ordered.retain(|known, _| orders.iter().any(|order| key(order) == *known));
        for order in &orders {
            self.ordered.entry(key(order)).or_insert(now);
        }
        orders
    }

    /// Returns the partitions that another node may give to this one, although this one did not ask
    /// for them: the other one drains, or an operator has ordered a move.
    fn awaited(
        &self,
        seen: &ClusterSeen,
        orders: &[MoveOrder],
        me: MemberId,
    ) -> Vec<(PartitionId, OwnerEpoch)> {
        let ordered = orders.iter().filter(|order| {
            order.to == me && self.engine.row(order.partition).epoch == order.epoch
        });
        let ordered = ordered.map(|order| (order.partition, order.epoch));
        let draining = seen
            .members
            .iter()
            .filter(|row| row.member.state == MemberState::Draining && row.member.id != me);
        let leaving = draining.filter_map(|row| row.member.incarnation);
        let leaving: BTreeSet<_> = leaving.filter(|it| seen.living.contains(it)).collect();
        let rows = self.available().map(|id| (id, self.engine.row(id)));
        let rows = rows
            .filter(|(_, row)| row.owner.is_some_and(|owner| leaving.contains(&owner.incarnation)));
        ordered.chain(rows.map(|(id, row)| (id, row.epoch))).collect()
    }

    /// Publishes the wishes in the member row.
    fn publish(&self, wants: BTreeMap<PartitionId, OwnerEpoch>) {
        let node = self.deployer.node;
        let mut wishes = node.membership().wishes();
        if wishes.wants != wants {
            wishes.wants = wants;
            drop(wishes);
            node.view().ask_now();
        }
    }

    /// Tells the engine which partitions to take: each second, and at once after some of them have
    /// been taken, because one call takes a limited number.
    fn take(&mut self, now: Instant, take: &[PartitionId]) -> bool {
        let (at, before) = self.next_attempt;
        if take.is_empty() || (now < at && take.len() >= before) {
            return false;
        }
        self.next_attempt = (now + TAKE_EVERY, take.len());
        self.engine.want(take.iter().copied());
        true
    }

    fn give_up(&mut self, now: Instant, steps: &[GiveUp], drain: DrainStage) {
        let node = self.deployer.node;
        // The successor looks for the partition once it has learned of the drain or of the order.
        let is_announced =
            |since: Option<Instant>| since.is_none_or(|since| now >= since + ANNOUNCED_FOR);
        for step @ GiveUp { partition, epoch, to } in steps {
            let ordered = self.ordered.get(&(*partition, *epoch)).copied();
            let may_go = match to {
                Some(_) => is_announced(drain.begun) && is_announced(ordered),
                None => !drain.is_final,
            };
            // A node that must end soon does not wait for answers.
            let is_there = drain.is_hurried || to.is_none_or(|to| self.asked.is_there(node, to));
            if may_go && is_there && self.end_other_work(*partition) {
                self.engine.give_up(now, *step);
            }
        }
    }

    /// Refuses repairs of a partition; false while a repair is under way.
    fn end_other_work(&self, partition: PartitionId) -> bool {
        let served = self.all.get(&partition).map(|(_, served)| served);
        let started = served.and_then(|served| served.started().get(&partition.partition).cloned());
        started.is_none_or(|started| started.fence.end_other_work())
    }

    /// A drain is done when this node owns nothing any more. Before a stop it is also done if no
    /// other node can own the rest, or the storage does not answer.
    fn note_drain(&self, drain: DrainStage, steps: &[GiveUp], is_sighted: bool) {
        let is_idle = self.stops.is_empty() && self.engine.giving().is_empty();
        let has_successor = steps.is_empty() || steps.iter().any(|step| step.to.is_some());
        let is_hopeless = drain.is_final && !(is_sighted && has_successor);
        let is_done = is_idle && (self.started.is_empty() || is_hopeless);
        self.deployer.node.drain().note_done(is_done);
    }

    /// Whether each partition whose row names this node was started.
    fn has_started_its_own(&self, partitions: &BTreeSet<PartitionId>) -> bool {
        let me = self.deployer.leadership.incarnation();
        let is_mine = |id: &PartitionId| {
            self.engine.row(*id).owner.is_some_and(|owner| owner.incarnation == me)
        };
        partitions.iter().all(|id| !is_mine(id) || self.started.contains_key(id))
    }
}
