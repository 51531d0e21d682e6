//! The wishes of a node, one rule at a time.

#![allow(clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use clock::{Instant, ManualClock};
use ielections::Incarnation;
use ownership::{
    BalancePlan, Balancer, ClusterSight, DRAINS, GiveUp, MOVES, Member, MemberId, MemberRow,
    MemberState, MoveOrder, Owner, OwnerEpoch, OwnerRow, OwnerRowsView, PartitionId, PartitionLoad,
};

const MILLI: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn id(partition: u16) -> PartitionId {
    PartitionId { app: 1, partition }
}

fn owner(node: u128) -> Owner {
    let advertised = ([10, 0, 0, node as u8], 1).into();
    Owner { incarnation: Incarnation(node), advertised, cluster: None }
}

fn give_up(partition: u16, to: impl Into<Option<u128>>) -> GiveUp {
    GiveUp { partition: id(partition), epoch: OwnerEpoch(1), to: to.into().map(owner) }
}

/// A cluster as node 1 sees it. All nodes have written their heartbeats just now.
struct Sight {
    balancer: Balancer,
    now: Instant,
    read_at: Instant,
    partitions: BTreeSet<PartitionId>,
    rows: OwnerRowsView,
    giving: Vec<GiveUp>,
    living: BTreeSet<Incarnation>,
    members: BTreeMap<u128, MemberRow>,
    /// The nodes whose heartbeats do not rise.
    silent: BTreeSet<u128>,
    orders: Vec<MoveOrder>,
    is_paused: bool,
}

impl Sight {
    /// A cluster of nodes that own these numbers of partitions.
    fn new(loads: &[u16]) -> Sight {
        let now = ManualClock::new(1).clock().now() + 1_000 * SECOND;
        let mut sight = Sight {
            balancer: Balancer::new(owner(1), 7),
            now,
            read_at: now,
            partitions: BTreeSet::new(),
            rows: OwnerRowsView::new(),
            giving: Vec::new(),
            living: BTreeSet::new(),
            members: BTreeMap::new(),
            silent: BTreeSet::new(),
            orders: Vec::new(),
            is_paused: false,
        };
        for (node, load) in (1..).zip(loads) {
            sight.join(node);
            for _ in 0..*load {
                let partition = sight.partitions.len() as u16;
                sight.partition(partition, node);
            }
        }
        sight
    }

    fn join(&mut self, node: u128) {
        self.living.insert(Incarnation(node));
        let member = Member {
            incarnation: Some(Incarnation(node)),
            state: MemberState::Ready,
            apps: [1].into(),
            recent_starts: 1,
            ..Member::new(MemberId(node), owner(node).advertised)
        };
        self.members.insert(node, MemberRow { heartbeat: 0, member });
    }

    fn partition(&mut self, partition: u16, node: impl Into<Option<u128>>) {
        self.partitions.insert(id(partition));
        let row = OwnerRow { epoch: OwnerEpoch(1), owner: node.into().map(owner) };
        self.rows.insert(id(partition), row);
    }

    fn member(&mut self, node: u128) -> &mut Member {
        &mut self.members.get_mut(&node).unwrap().member
    }

    fn wants(&mut self, node: u128, partitions: impl IntoIterator<Item = u16>) {
        let wants = partitions.into_iter().map(|partition| (id(partition), OwnerEpoch(1)));
        self.member(node).wants = wants.collect();
    }

    /// Plans by the last read.
    fn plan(&mut self) -> BalancePlan {
        let members: Vec<_> = self.members.values().cloned().collect();
        let sight = ClusterSight {
            partitions: &self.partitions,
            rows: &self.rows,
            giving: &self.giving,
            living: &self.living,
            members: &members,
            orders: &self.orders,
            is_paused: self.is_paused,
            read_at: self.read_at,
        };
        let plan = self.balancer.plan(self.now, &sight, &members[0].member);
        self.member(1).wants = plan.wants.clone();
        plan
    }

    /// Begins to give up everything that the plan names.
    fn begin(&mut self) -> Vec<GiveUp> {
        let steps = self.plan().give_up;
        self.giving.extend(&steps);
        steps
    }

    /// A partition that this node gave up has left.
    fn leave(&mut self, partition: u16, to: u128) {
        let row = OwnerRow { epoch: OwnerEpoch(2), owner: Some(owner(to)) };
        self.rows.insert(id(partition), row);
        self.giving.retain(|step| step.partition != id(partition));
    }

    /// Waits this many seconds, with a read and a plan each second.
    fn after(&mut self, seconds: u32) -> BalancePlan {
        let mut plan = self.plan();
        for _ in 0..seconds {
            self.now = self.now + SECOND;
            self.read_at = self.now;
            for (node, row) in &mut self.members {
                row.heartbeat += u64::from(!self.silent.contains(node));
            }
            plan = self.plan();
        }
        plan
    }

    fn taken(&mut self, seconds: u32) -> Vec<u16> {
        let plan = self.after(seconds);
        plan.take.iter().map(|partition| partition.partition).collect()
    }

    fn wanted(&mut self, seconds: u32) -> Vec<u16> {
        let plan = self.after(seconds);
        plan.wants.keys().map(|partition| partition.partition).collect()
    }
}

#[test]
fn free_partitions_are_dealt_to_the_least_loaded() {
    // Node 1 has two partitions, the others have one.
    let mut sight = Sight::new(&[2, 1, 1]);
    for partition in 4..10 {
        sight.partition(partition, None);
    }
    // 4 and 5 go to nodes 2 and 3, 6 to node 1, and so on.
    assert_eq!(sight.taken(0), [6, 9]);
    // A partition of an owner without a lease is free, too. One that has no epoch left is not.
    sight.living.remove(&Incarnation(3));
    sight.rows.get_mut(&id(4)).unwrap().epoch = OwnerEpoch::MAX;
    // 3 to node 2, 5 to node 1, 6 to node 2, ...
    assert_eq!(sight.taken(0), [5, 7, 9]);
}

#[test]
fn a_partition_that_the_best_node_does_not_take_is_taken_by_the_next_one() {
    // The rank of node 1 is the number of nodes with a lower load.
    for (loads, least) in [(&[0, 0][..], 0), (&[1, 0], 1), (&[1, 0, 0], 2), (&[1, 0, 0, 0, 0], 3)] {
        let mut sight = Sight::new(loads);
        sight.partition(9, None);
        let due = |sight: &mut Sight| sight.plan().take == [id(9)];
        let begin = sight.now;
        while !due(&mut sight) {
            sight.now = sight.now + 10 * MILLI;
            sight.read_at = sight.now;
            sight.members.values_mut().for_each(|row| row.heartbeat += 1);
            assert!(sight.now - begin < 4 * SECOND);
        }
        let waited = sight.now - begin;
        let jitter = if least == 0 { Duration::ZERO } else { 510 * MILLI };
        assert!(waited >= least * SECOND && waited <= least * SECOND + jitter, "{waited:?}");
        // It is named again, until somebody owns it.
        assert!(due(&mut sight));
        sight.rows.get_mut(&id(9)).unwrap().epoch = OwnerEpoch(2);
        assert_eq!(due(&mut sight), least == 0, "another row counts anew");
    }
}

#[test]
fn nodes_that_do_not_live_get_nothing() {
    for break_it in [
        |sight: &mut Sight| drop(sight.members.remove(&2)),
        |sight: &mut Sight| assert!(sight.living.remove(&Incarnation(2))),
        |sight: &mut Sight| sight.member(2).state = MemberState::Starting,
        |sight: &mut Sight| sight.member(2).state = MemberState::Draining,
        |sight: &mut Sight| sight.member(2).incarnation = None,
        |sight: &mut Sight| sight.member(2).apps.clear(),
        |sight: &mut Sight| {
            sight.silent.insert(2);
            sight.after(4);
        },
    ] {
        let mut sight = Sight::new(&[1, 0]);
        sight.after(1);
        break_it(&mut sight);
        sight.partition(9, None);
        assert_eq!(sight.taken(0), [9]);
    }
    let mut sight = Sight::new(&[1, 0]);
    sight.silent.insert(2);
    sight.after(3);
    sight.partition(9, None);
    assert_eq!(sight.taken(0), [0; 0], "a heartbeat that rose 3 s ago is fresh");
}

#[test]
fn a_node_that_cannot_write_its_heartbeat_takes_partitions() {
    let mut sight = Sight::new(&[0]);
    sight.silent.insert(1);
    sight.after(10);
    sight.partition(0, None);
    assert_eq!(sight.taken(0), [0]);
    sight.member(1).state = MemberState::Starting;
    assert_eq!(sight.taken(0), [0; 0]);
}

#[test]
fn a_node_that_flaps_or_has_refused_a_partition_comes_last() {
    let mut sight = Sight::new(&[1, 0]);
    sight.partition(9, None);
    assert_eq!(sight.taken(0), [0; 0]);
    sight.member(2).recent_starts = 3;
    assert_eq!(sight.taken(0), [9]);
    sight.member(2).recent_starts = 2;
    assert_eq!(sight.taken(0), [0; 0]);
    sight.member(2).refused.insert(id(9));
    assert_eq!(sight.taken(0), [9]);
    // Both have refused it: the node that is the best tries again after a minute.
    let mut sight = Sight::new(&[0, 0]);
    sight.partition(9, None);
    sight.member(1).refused.insert(id(9));
    sight.member(2).refused.insert(id(9));
    assert_eq!(sight.taken(59), [0; 0]);
    assert_eq!(sight.taken(1), [9]);
}

#[test]
fn an_address_with_three_new_incarnations_flaps_for_ten_minutes() {
    let mut sight = Sight::new(&[1, 0]);
    sight.partition(9, None);
    let take = |sight: &mut Sight| {
        sight.rows.get_mut(&id(9)).unwrap().epoch.0 += 1;
        sight.taken(1)
    };
    for incarnation in [12, 13, 14] {
        assert_eq!(take(&mut sight), [0; 0]);
        sight.living.insert(Incarnation(incarnation));
        // The process is another one, so its id differs.
        let member = sight.member(2);
        member.id = MemberId(incarnation);
        member.incarnation = Some(Incarnation(incarnation));
    }
    let flapping = (0..1_000).take_while(|_| take(&mut sight) == [9]).count();
    assert!((595..=600).contains(&flapping), "{flapping}");
}

#[test]
fn a_node_asks_for_its_share_after_ten_quiet_seconds() {
    let mut sight = Sight::new(&[0, 5]);
    assert_eq!(sight.wanted(9), [0; 0]);
    assert_eq!(sight.wanted(1), [0, 1]);
    // A node comes: the loads would be 2, 2, 1.
    sight.join(3);
    assert_eq!(sight.wanted(10), [0; 0], "it is seen by the next read");
    assert_eq!(sight.wanted(1), [0, 2]);
    // A view that was not read for more than 3 s begins anew.
    sight.now = sight.now + 4 * SECOND;
    sight.read_at = sight.now;
    sight.members.values_mut().for_each(|row| row.heartbeat += 1);
    assert_eq!(sight.wanted(9), [0; 0]);
    assert_eq!(sight.wanted(1), [0, 2]);
    let mut even = Sight::new(&[2, 3]);
    assert_eq!(even.wanted(20), [0; 0], "a difference of 1 is even");
}

#[test]
fn nothing_moves_while_a_partition_is_free_or_recovers_or_moves_are_paused() {
    let mut sight = Sight::new(&[0, 4]);
    assert_eq!(sight.wanted(10), [0, 1]);
    sight.member(2).is_recovering = true;
    assert_eq!(sight.wanted(0), [0; 0]);
    sight.member(2).is_recovering = false;
    sight.is_paused = true;
    assert_eq!(sight.wanted(0), [0; 0]);
    sight.partition(9, None);
    assert_eq!(sight.taken(0), [9], "a paused cluster takes free partitions");
    sight.is_paused = false;
    assert_eq!(sight.wanted(59), [0; 0]);
    assert_eq!(sight.wanted(1), [0, 1], "a partition that nobody takes stops no moves for ever");
    sight.rows.get_mut(&id(9)).unwrap().epoch = OwnerEpoch(2);
    assert_eq!(sight.wanted(0), [0; 0]);
    sight.member(1).apps = [2].into();
    sight.member(2).apps = [2].into();
    sight.partitions.remove(&id(9));
    sight.partitions.insert(PartitionId { app: 3, partition: 0 });
    assert_eq!(sight.wanted(10), [0; 0], "node 1 cannot run them");
    sight.member(1).apps = [1].into();
    assert_eq!(sight.wanted(10), [0, 1], "a partition that no node can run stops no moves");
}

#[test]
fn an_owner_gives_up_only_what_both_sides_name() {
    let mut sight = Sight::new(&[6, 0, 0]);
    sight.wants(2, [0]);
    assert_eq!(sight.after(9).give_up, []);
    assert_eq!(sight.after(1).give_up, [give_up(0, 2)]);
    // The wish was for another epoch.
    sight.member(2).wants.insert(id(0), OwnerEpoch(2));
    sight.balancer = Balancer::new(owner(1), 7);
    assert_eq!(sight.after(10).give_up, []);
    // More wishes than the share of node 2.
    sight.wants(2, 0..6);
    assert_eq!(sight.after(0).give_up, [give_up(0, 2), give_up(1, 2)]);
    // Node 3 asks for the rest. It is given, whatever partitions it asks for.
    sight.wants(3, [4, 5]);
    let expected = [give_up(0, 2), give_up(1, 2), give_up(4, 3), give_up(5, 3)];
    assert_eq!(sight.after(0).give_up, expected);
}

#[test]
fn a_partition_on_its_way_keeps_its_successor() {
    let mut sight = Sight::new(&[6, 0, 0]);
    sight.wants(2, [0, 1]);
    sight.after(10);
    assert_eq!(sight.begin(), [give_up(0, 2), give_up(1, 2)]);
    // Node 2 asks no more, and node 3 asks for all. Two are left for it.
    sight.wants(2, []);
    sight.wants(3, 0..6);
    assert_eq!(sight.after(1).give_up, [give_up(2, 3), give_up(3, 3)]);
    // Node 2 is dead. A partition on its way to node 2 cannot go to another node.
    sight.living.remove(&Incarnation(2));
    let give_up = sight.after(10).give_up;
    assert!(give_up.iter().all(|step| step.to == Some(owner(3))), "{give_up:?}");
    assert!(give_up.iter().all(|step| step.partition >= id(2)), "{give_up:?}");
}

/// A drain was announced and then cancelled, before any partition had stopped. Ten seconds later
/// the node still gave four partitions away.
#[test]
fn a_node_whose_drain_was_cancelled_keeps_what_it_has_not_begun_to_give_away() {
    let mut sight = Sight::new(&[3, 3]);
    sight.member(1).state = MemberState::Draining;
    assert_eq!(sight.plan().give_up, [give_up(0, 2), give_up(1, 2), give_up(2, 2)]);
    sight.member(1).state = MemberState::Ready;
    assert_eq!(sight.after(20).give_up, []);
}

#[test]
fn a_partition_that_is_not_ready_does_not_move() {
    let mut sight = Sight::new(&[0, 4]);
    let load = |status: &str| PartitionLoad { status: status.into(), ..PartitionLoad::default() };
    sight.member(2).loads.insert(id(0), load("recovering"));
    sight.member(2).loads.insert(id(1), load(PartitionLoad::READY));
    assert_eq!(sight.wanted(10), [1, 2]);
    sight.member(1).refused.insert(id(1));
    assert_eq!(sight.wanted(0), [2, 3]);
    sight.member(1).recent_starts = 3;
    assert_eq!(sight.wanted(20), [0; 0], "a node that flaps gets no moves");
}

#[test]
fn the_greatest_possible_difference_comes_first() {
    // Node 4 has the highest load, but node 1 cannot run its partitions.
    let mut sight = Sight::new(&[0, 2, 4, 0]);
    sight.member(4).apps = [2].into();
    for partition in 0..7 {
        let partition = PartitionId { app: 2, partition };
        sight.partitions.insert(partition);
        let row = OwnerRow { epoch: OwnerEpoch(1), owner: Some(owner(4)) };
        sight.rows.insert(partition, row);
    }
    assert_eq!(sight.wanted(10), [2, 3]);
    // Of two owners the one with more partitions gives.
    assert_eq!(Sight::new(&[0, 3, 4]).wanted(10), [0, 3]);
}

#[test]
fn a_wish_that_evens_nothing_out_is_not_met() {
    // Node 2 gives one of its six to node 3, and node 1 gives one of its four to node 4.
    let mut sight = Sight::new(&[4, 0, 3, 2]);
    sight.member(2).apps = [2].into();
    sight.member(3).apps = [1, 2].into();
    for partition in 0..6 {
        let partition = PartitionId { app: 2, partition };
        sight.partitions.insert(partition);
        let row = OwnerRow { epoch: OwnerEpoch(1), owner: Some(owner(2)) };
        sight.rows.insert(partition, row);
    }
    sight.wants(4, [0]);
    assert_eq!(sight.after(10).give_up, [give_up(0, 4)]);
    sight.balancer = Balancer::new(owner(1), 7);
    sight.wants(4, []);
    sight.wants(3, [0]);
    assert_eq!(sight.after(10).give_up, [], "node 3 has one less than node 1");
}

#[test]
fn partitions_that_few_nodes_can_run_move_first() {
    // Node 3 can run application 1 only, so the partition of application 1 is left for node 3.
    let mut sight = Sight::new(&[0, 1, 0]);
    sight.member(1).apps = [1, 2].into();
    sight.member(2).apps = [1, 2].into();
    for partition in 1..5 {
        let partition = PartitionId { app: 2, partition };
        sight.partitions.insert(partition);
        let row = OwnerRow { epoch: OwnerEpoch(1), owner: Some(owner(2)) };
        sight.rows.insert(partition, row);
    }
    assert_eq!(sight.wanted(10), [1, 2]);
}

/// A node saw only the partitions that it can run itself. So it did not know which other moves were
/// possible: its plan gave node 3 a partition that the owner kept for this node, and the loads
/// stayed uneven.
#[test]
fn a_node_plans_the_moves_of_partitions_that_it_cannot_run() {
    let mut sight = Sight::new(&[0, 2, 0]);
    for node in [2, 3] {
        sight.member(node).apps = [1, 2].into();
    }
    for partition in 0..4 {
        let row = OwnerRow { epoch: OwnerEpoch(1), owner: Some(owner(2)) };
        sight.rows.insert(PartitionId { app: 2, partition }, row);
    }
    assert_eq!(sight.wanted(10), [0, 1]);
}

#[test]
fn a_node_asks_for_eight_partitions_and_gives_up_eight_at_a_time() {
    let mut sight = Sight::new(&[0, 40]);
    assert_eq!(sight.after(10).wants.len(), MOVES);
    let mut sight = Sight::new(&[60, 0, 0]);
    sight.wants(2, 0..8);
    sight.wants(3, 8..16);
    sight.after(10);
    assert_eq!(sight.begin(), (0..8).map(|partition| give_up(partition, 2)).collect::<Vec<_>>());
    assert_eq!(sight.after(1).give_up, []);
    // One has left: one more may go.
    sight.leave(3, 2);
    assert_eq!(sight.after(1).give_up, [give_up(8, 3)]);
}

#[test]
fn a_partition_that_was_given_away_is_not_taken_back_for_five_seconds() {
    let mut sight = Sight::new(&[2, 0]);
    sight.wants(2, [0]);
    sight.after(10);
    assert_eq!(sight.begin(), [give_up(0, 2)]);
    sight.leave(0, 2);
    sight.after(1);
    // The successor is gone, and node 1 is the only one left.
    sight.living.remove(&Incarnation(2));
    assert_eq!(sight.taken(3), [0; 0]);
    assert_eq!(sight.taken(1), [0]);
}

#[test]
fn a_node_with_an_old_view_takes_and_gives_nothing() {
    let mut sight = Sight::new(&[4, 0]);
    sight.wants(2, [0, 1]);
    assert_eq!(sight.after(10).give_up.len(), 2);
    sight.partition(9, None);
    sight.member(2).apps.clear();
    sight.now = sight.now + 3 * SECOND;
    assert_eq!(sight.plan().take, [id(9)]);
    sight.now = sight.now + MILLI;
    assert_eq!(sight.plan(), BalancePlan::default());
    sight.member(1).state = MemberState::Draining;
    assert_eq!(sight.plan(), BalancePlan::default());
    // A read without the lease of the node itself is no better.
    sight.read_at = sight.now;
    assert_eq!(sight.plan().give_up.len(), DRAINS);
    sight.living.remove(&Incarnation(1));
    assert_eq!(sight.plan(), BalancePlan::default());
}

#[test]
fn an_order_is_done_at_once_even_if_moves_are_paused() {
    let mut sight = Sight::new(&[1, 3]);
    sight.is_paused = true;
    let order = |partition, epoch, to| MoveOrder {
        partition: id(partition),
        epoch: OwnerEpoch(epoch),
        to: MemberId(to),
    };
    sight.orders = vec![order(0, 1, 2)];
    assert_eq!(sight.plan().give_up, [give_up(0, 2)]);
    // The epoch differs, the node is unknown, and the partition belongs to another node.
    sight.orders = vec![order(0, 2, 2), order(0, 1, 7), order(1, 1, 1)];
    assert_eq!(sight.plan().give_up, []);
    sight.orders = vec![order(0, 1, 2)];
    sight.member(2).apps.clear();
    assert_eq!(sight.plan().give_up, []);
}

/// A partition that could not be started stayed at its owner forever, although another node could
/// start it.
#[test]
fn an_owner_gives_away_what_it_has_refused_to_a_node_that_has_not() {
    let mut sight = Sight::new(&[2, 1, 0, 0]);
    sight.is_paused = true;
    sight.member(1).refused = [id(0), id(2)].into();
    assert_eq!(sight.plan().give_up, [give_up(0, 3)], "partition 2 belongs to another node");
    sight.member(3).refused = [id(0)].into();
    assert_eq!(sight.begin(), [give_up(0, 4)]);
    assert_eq!(sight.plan().give_up, [], "it is on its way");
    sight.giving.clear();
    sight.member(2).apps.clear();
    sight.member(4).refused = [id(0)].into();
    assert_eq!(sight.plan().give_up, [], "nobody else can start it");
}

#[test]
fn a_draining_node_gives_four_at_a_time_to_the_least_loaded() {
    let mut sight = Sight::new(&[6, 1, 0]);
    sight.member(1).state = MemberState::Draining;
    let four = [give_up(0, 3), give_up(1, 2), give_up(2, 3), give_up(3, 2)];
    assert_eq!(sight.begin(), four);
    assert_eq!(sight.plan().give_up, [], "four are on their way");
    // Those that are on their way count: nodes 2 and 3 have 3 and 2 with them.
    sight.leave(2, 3);
    assert_eq!(sight.begin(), [give_up(4, 3)]);
    sight.balancer.hurry();
    assert_eq!(sight.plan().give_up, [give_up(5, 2)]);
    assert_eq!(sight.plan().take, []);
    // Nobody else can run them.
    sight.member(2).state = MemberState::Draining;
    sight.living.remove(&Incarnation(3));
    assert_eq!(sight.plan().give_up, [give_up(5, None)]);
}

/// A node that stops keeps the partitions that no other node can run. Four such partitions filled
/// the limit of a drain, so the node ended its drain with the others still on it.
#[test]
fn a_draining_node_gives_away_first_what_others_can_run() {
    let mut sight = Sight::new(&[2, 0]);
    sight.member(1).state = MemberState::Draining;
    for partition in 0..4 {
        let partition = PartitionId { app: 0, partition };
        sight.partitions.insert(partition);
        let row = OwnerRow { epoch: OwnerEpoch(1), owner: Some(owner(1)) };
        sight.rows.insert(partition, row);
    }
    let none =
        |partition| GiveUp { partition: PartitionId { app: 0, partition }, ..give_up(0, None) };
    assert_eq!(sight.plan().give_up, [give_up(0, 2), give_up(1, 2), none(0), none(1)]);
}

#[test]
fn a_successor_that_does_not_answer_gets_nothing_for_five_seconds() {
    let mut sight = Sight::new(&[2, 1, 0]);
    sight.member(1).state = MemberState::Draining;
    assert_eq!(sight.plan().give_up, [give_up(0, 3), give_up(1, 2)]);
    sight.balancer.successor_failed(sight.now, Incarnation(3));
    assert_eq!(sight.plan().give_up, [give_up(0, 2), give_up(1, 2)]);
    sight.balancer.successor_failed(sight.now, Incarnation(2));
    assert_eq!(sight.plan().give_up, [], "a successor may answer soon");
    sight.balancer.hurry();
    assert_eq!(sight.plan().give_up, [give_up(0, None), give_up(1, None)]);

    let mut sight = Sight::new(&[2, 0]);
    sight.wants(2, [0]);
    assert_eq!(sight.after(10).give_up, [give_up(0, 2)]);
    sight.balancer.successor_failed(sight.now, Incarnation(2));
    assert_eq!(sight.after(4).give_up, []);
    assert_eq!(sight.after(1).give_up, [give_up(0, 2)]);
}
