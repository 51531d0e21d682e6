//! The wishes of a node: which partitions it tries to take, asks for, and gives away.
//!
//! The module does no I/O, and has no clock and no task. A wrong plan costs time, or an unneeded
//! move. It never makes a second owner: the [`OwnershipEngine`](crate::OwnershipEngine) keeps every
//! change safe.
//!
//! All nodes plan from the same rows by the same rules. So they agree without messages as soon as
//! they see the same rows. The *load* of a node is the number of partitions that it owns by the
//! ownership rows. A *candidate* is a node that is ready, whose lease exists, and whose heartbeat
//! rose within the last 3 seconds. The node itself is a candidate if it is ready, even if its own
//! heartbeat could not be written. Otherwise a table that refuses writes would leave no candidate
//! at all. A candidate is *steady* unless it was started 3 times within 10 minutes, or the
//! incarnation of its address changed 3 times within 10 minutes.
//!
//! # Free partitions
//!
//! A partition is free if its row names no owner, or an owner without a lease. Free partitions are
//! dealt out in the order of their ids, each to the candidate with the lowest load. The load
//! includes the partitions dealt before. The best candidate takes the partition at once. The next
//! one waits a second, the others 2 or 3, and all except the best one wait up to half a second
//! more, by a seed. So a partition is taken even if the best candidate does not take it.
//!
//! A candidate that is not steady, or has refused the partition, comes last. It is not left out,
//! because it is better than no owner. A node that has refused a partition tries again after a
//! minute.
//!
//! # Moves
//!
//! Steady candidates even out their loads. A partition moves from the highest load to the lowest
//! one, as long as these differ by more than 1. Each move lowers the sum of the squares of the
//! loads, so the moves end. The successor publishes up to [`MOVES`] moves of its plan as wishes in
//! its member row. The owner gives up to [`MOVES`] partitions at a time, and only if its own plan
//! names the same moves. So two nodes that see different rows move nothing.
//!
//! Nothing moves within 10 seconds after the steady candidates changed, or while a partition has
//! been free or recovering for less than a minute. A partition that nobody takes for a minute, or
//! that no node can run, does not stop the moves of others.
//!
//! A [`MoveOrder`] of an operator needs neither wishes nor the 10 seconds, and is done even while
//! moves are paused. Afterwards the loads are evened out again, unless moves are paused.
//!
//! # Refused partitions
//!
//! An owner that cannot start a partition names it in its member row as refused. It gives the
//! partition to the candidate with the lowest load among those that can run it and have not refused
//! it, even while moves are paused. If there is none, the owner goes on trying.
//!
//! # Drain
//!
//! A draining node gives all its partitions to the candidates with the lowest loads, [`DRAINS`] at
//! a time. Partitions that no other node can run come last, and are released.
//!
//! # A view that is older than 3 seconds
//!
//! The node gives nothing up, because its successors may be dead. The node takes nothing either,
//! because it does not know which nodes live: it would take the shares of others, and they would
//! move back. This costs no time, because a take reads rows and leases from the same storage, which
//! does not answer.
//!
//! # The host
//!
//! The host calls [`Balancer::plan`] after each read and at least once a second, and passes the
//! result to the engine. It writes the member row once a second, and at once if the wishes or
//! `is_recovering` differ. It reads again at once after a partition came or left. Before it stops a
//! partition, a host may ask the successor whether it is there. If there is no answer, the host
//! tells the balancer with [`Balancer::successor_failed`].

mod cluster;
mod deal;
mod drain;
mod moves;
mod watch;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use clock::Instant;
use ielections::Incarnation;

pub use self::deal::LONGEST_TAKE_WAIT;
use self::{cluster::Cluster, deal::FreePartitions, moves::Move, watch::Watch};
use crate::{
    Member, MemberId, MemberRow, MemberState, Owner, OwnerEpoch, OwnerRowsView, PartitionId,
};

/// The most partitions that a node asks for, and the most that it gives up at a time, to even out
/// the loads.
pub const MOVES: usize = 8;

/// The most partitions that a draining node gives away at a time, unless it hurries.
pub const DRAINS: usize = 4;

/// The waits of balancing. All nodes of a cluster use the [default](BalanceTimes::default);
/// simulations use others to show why each wait is needed.
#[derive(Clone, Copy, Debug)]
pub struct BalanceTimes {
    /// After this time a view is too old, and so is a heartbeat.
    pub fresh: Duration,
    /// How long nothing moves after the steady candidates changed.
    pub quiet: Duration,
    /// How long a node does not take or want a partition that it has given away.
    pub not_back: Duration,
}

/// How long a view of the cluster, or the heartbeat of a node, is fresh.
pub const FRESH: Duration = Duration::from_secs(3);

/// How long a node that did not answer cannot be a successor.
const NO_ANSWER: Duration = Duration::from_secs(5);

impl Default for BalanceTimes {
    fn default() -> BalanceTimes {
        let [quiet, not_back] = [10, 5].map(Duration::from_secs);
        BalanceTimes { fresh: FRESH, quiet, not_back }
    }
}

/// The wishes of a node, during one leadership.
#[derive(Debug)]
pub struct Balancer {
    me: Owner,
    times: BalanceTimes,
    watch: Watch,
    free: FreePartitions,
    /// The partitions that this node was giving away, or began to, at the last plan.
    giving: BTreeSet<PartitionId>,
    /// The partitions that this node gives away, or did until just now. The time is that of the
    /// first plan after the partition had left, or until then that of the last plan.
    given: BTreeMap<PartitionId, Instant>,
    /// The nodes that did not answer, and until when they cannot be successors.
    unanswered: BTreeMap<Incarnation, Instant>,
    is_hurried: bool,
}

/// What a node sees of its cluster.
#[derive(Clone, Copy, Debug)]
pub struct ClusterSight<'a> {
    /// The partitions that this node can work on, without those that nobody can take because
    /// their rows make no sense.
    pub partitions: &'a BTreeSet<PartitionId>,
    /// The ownership rows, as [`OwnershipEngine::rows`](crate::OwnershipEngine::rows) has them: no
    /// epoch falls. A plain read alone may show a former row of this node, and then the node would
    /// ask for too many partitions.
    pub rows: &'a OwnerRowsView,
    /// The partitions that this node has begun to give up, as
    /// [`OwnershipEngine::giving`](crate::OwnershipEngine::giving) has them.
    pub giving: &'a [GiveUp],
    /// The incarnations whose leases exist, by a plain read.
    pub living: &'a BTreeSet<Incarnation>,
    /// The member rows. The row of this node may be among them, and is not used.
    pub members: &'a [MemberRow],
    /// The orders of operators.
    pub orders: &'a [MoveOrder],
    /// Whether an operator has paused the moves that even out the loads.
    pub is_paused: bool,
    /// When the oldest of these reads was sent.
    pub read_at: Instant,
}

/// An order of an operator to move a partition. It is void once the epoch of the partition differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveOrder {
    /// The partition.
    pub partition: PartitionId,
    /// The epoch of the owner that gives the partition up.
    pub epoch: OwnerEpoch,
    /// The node that gets the partition.
    pub to: MemberId,
}

/// The wishes of a node at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BalancePlan {
    /// The free partitions to take now. Each plan names them again until their rows have an owner.
    pub take: Vec<PartitionId>,
    /// The moves to this node that it asks for, to be published in its member row.
    pub wants: BTreeMap<PartitionId, OwnerEpoch>,
    /// The partitions to begin to give up now. Each plan names them again until the node has begun.
    pub give_up: Vec<GiveUp>,
}

/// A partition that its owner gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GiveUp {
    /// The partition.
    pub partition: PartitionId,
    /// The epoch of this node's ownership.
    pub epoch: OwnerEpoch,
    /// The next owner. `None`: no node can run the partition, so it is released.
    pub to: Option<Owner>,
}

impl Balancer {
    /// Makes the balancer of a leadership that has just begun. The `seed` differs between nodes: it
    /// spreads the takes of nodes that wait for the same partition.
    pub fn new(me: Owner, seed: u64) -> Balancer {
        Balancer {
            me,
            times: BalanceTimes::default(),
            watch: Watch::new(BalanceTimes::default().fresh),
            free: FreePartitions::new(seed),
            giving: BTreeSet::new(),
            given: BTreeMap::new(),
            unanswered: BTreeMap::new(),
            is_hurried: false,
        }
    }

    /// The same balancer with other waits.
    #[must_use]
    pub fn with_times(mut self, times: BalanceTimes) -> Balancer {
        self.watch = Watch::new(times.fresh);
        self.times = times;
        self
    }

    /// Tells that a drain must end soon: from now on all partitions are given away at once. This
    /// holds until the node is no longer draining.
    pub fn hurry(&mut self) {
        self.is_hurried = true;
    }

    /// Tells that a successor did not answer, and that the partitions of the plan were not given to
    /// it. The node gives it nothing for 5 seconds.
    pub fn successor_failed(&mut self, now: Instant, successor: Incarnation) {
        self.unanswered.insert(successor, now + NO_ANSWER);
    }

    /// Returns the wishes of this node. `own` is what the node says of itself now, with the wishes
    /// of the previous plan.
    pub fn plan(&mut self, now: Instant, sight: &ClusterSight<'_>, own: &Member) -> BalancePlan {
        self.watch.observe(sight);
        self.unanswered.retain(|_, until| now < *until);
        self.given.extend(std::mem::take(&mut self.giving).into_iter().map(|id| (id, now)));
        self.given.retain(|_, at| now.saturating_since(*at) < self.times.not_back);
        self.note_given(now, sight.giving);
        let cluster = Cluster::new(self.me, own, sight, &self.watch);
        let steady = cluster.steady().map(|node| (node.member.id, node.owner.incarnation));
        self.watch.note_steady(now, steady.collect());
        let is_draining = own.state == MemberState::Draining;
        self.is_hurried &= is_draining;
        // A read that lacks the lease of this node is wrong about the other leases, too.
        let is_living = sight.living.contains(&self.me.incarnation);
        if now.saturating_since(sight.read_at) > self.times.fresh || !is_living {
            return BalancePlan::default();
        }
        if is_draining {
            let give_up = self.drain(sight.giving, &cluster);
            self.note_given(now, &give_up);
            return BalancePlan { give_up, ..BalancePlan::default() };
        }
        let dealt = self.free.deal(now, &cluster);
        let take = dealt.take.into_iter().filter(|id| !self.given.contains_key(id)).collect();
        let orders = moves::ordered(&cluster, sight.orders);
        let is_quiet = !dealt.is_waiting
            && !cluster.is_recovering
            && self.watch.steady_for(now) >= self.times.quiet;
        let (mut give_up, wants) = if is_quiet && !sight.is_paused {
            self.even_out(&cluster, &orders, sight.giving)
        } else {
            Default::default()
        };
        let orders = orders.iter().filter(|step| step.from == self.me.incarnation);
        give_up.extend(orders.map(Move::give_up));
        give_up.extend(cluster.refused(own));
        give_up.retain(|step| {
            let has_begun = sight.giving.iter().any(|begun| begun.partition == step.partition);
            let is_silent = step.to.is_some_and(|to| self.is_unanswered(to.incarnation));
            !has_begun && !is_silent
        });
        self.note_given(now, &give_up);
        BalancePlan { take, wants, give_up }
    }

    /// Returns what this node gives up and what it asks for, to even out the loads.
    fn even_out(
        &self,
        cluster: &Cluster<'_>,
        orders: &[Move],
        giving: &[GiveUp],
    ) -> (Vec<GiveUp>, BTreeMap<PartitionId, OwnerEpoch>) {
        let me = self.me.incarnation;
        let on_their_way = giving.iter().filter_map(|&GiveUp { partition, epoch, to }| {
            let to = cluster.candidate(to?.incarnation).filter(|to| to.is_willing(partition))?;
            let is_ordered = orders.iter().any(|step| step.partition == partition);
            (!is_ordered).then_some(Move { partition, epoch, from: me, to: to.owner })
        });
        let under_way: Vec<_> = orders.iter().copied().chain(on_their_way).collect();
        let moves = moves::even_out(cluster, &under_way);
        let to_me = moves.iter().filter(|step| step.to.incarnation == me);
        let wanted = to_me.filter(|step| !self.given.contains_key(&step.partition)).take(MOVES);
        let wants = wanted.map(|step| (step.partition, step.epoch)).collect();
        let from_me = moves.iter().filter(|step| step.from == me && cluster.wants(step));
        let room = MOVES.saturating_sub(giving.len());
        (from_me.take(room).map(Move::give_up).collect(), wants)
    }

    fn note_given(&mut self, now: Instant, steps: &[GiveUp]) {
        self.giving.extend(steps.iter().map(|step| step.partition));
        self.given.extend(steps.iter().map(|step| (step.partition, now)));
    }

    fn is_unanswered(&self, successor: Incarnation) -> bool {
        self.unanswered.contains_key(&successor)
    }
}
