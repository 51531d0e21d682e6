//! The decisions of a node about its partitions, one call at a time.

#![allow(clippy::unwrap_used)]

use std::{collections::BTreeSet, time::Duration};

use clock::{Instant, ManualClock};
use ielections::Incarnation;
use ownership::{
    GiveUp, LOOK_EVERY, Owner, OwnerChange, OwnerEpoch, OwnerRow, OwnerRowsView, OwnershipAction,
    OwnershipAnswer, OwnershipCall, OwnershipEngine, OwnershipNotice, PartitionId,
};

const SECOND: Duration = Duration::from_secs(1);

fn id(partition: u16) -> PartitionId {
    PartitionId { app: 1, partition }
}

fn node(incarnation: u128) -> Owner {
    let advertised = "10.0.0.1:8822".parse().unwrap();
    Owner { incarnation: Incarnation(incarnation), advertised, cluster: None }
}

fn me() -> Owner {
    node(1)
}

fn other() -> Owner {
    node(2)
}

fn row(epoch: u32, owner: impl Into<Option<Owner>>) -> OwnerRow {
    OwnerRow { epoch: OwnerEpoch(epoch), owner: owner.into() }
}

/// A node, and the storage of its cluster.
struct World {
    engine: OwnershipEngine,
    now: Instant,
    rows: OwnerRowsView,
    living: BTreeSet<Incarnation>,
    /// The answer to each change, instead of the right one.
    broken: Option<OwnershipAnswer>,
    /// The call that has no answer.
    silent: Option<OwnershipCall>,
    /// All calls since the last look at them.
    calls: Vec<OwnershipCall>,
}

impl World {
    fn new(partitions: u16, rows_at_once: usize) -> World {
        let now = ManualClock::new(1).clock().now();
        let engine = OwnershipEngine::new(me(), (0..partitions).map(id), rows_at_once, now);
        let living = [me(), other()].map(|owner| owner.incarnation).into();
        World {
            engine,
            now,
            rows: OwnerRowsView::new(),
            living,
            broken: None,
            silent: None,
            calls: Vec::new(),
        }
    }

    fn answer(&mut self, call: &OwnershipCall) -> OwnershipAnswer {
        if self.silent.as_ref() == Some(call) {
            return OwnershipAnswer::Unavailable;
        }
        let changes = match call {
            OwnershipCall::LookAtRows | OwnershipCall::ReadRows => {
                return OwnershipAnswer::Rows(self.rows.clone());
            }
            OwnershipCall::ReadLeases => return OwnershipAnswer::Leases(self.living.clone()),
            OwnershipCall::Change(changes) => changes,
        };
        if let Some(broken) = &self.broken {
            return broken.clone();
        }
        let stored = |partition| self.rows.get(&partition).copied().unwrap_or_default();
        let there: OwnerRowsView = changes
            .iter()
            .map(|change| (change, stored(change.partition)))
            .filter(|(change, there)| change.from != *there)
            .map(|(change, there)| (change.partition, there))
            .collect();
        if !there.is_empty() {
            return OwnershipAnswer::Refused(there);
        }
        self.rows.extend(changes.iter().map(|change| (change.partition, change.to)));
        OwnershipAnswer::Changed
    }

    /// Makes all calls until the node waits. Returns until when it waits.
    fn settle(&mut self) -> Instant {
        let mut answer = OwnershipAnswer::None;
        for _ in 0..100 {
            match self.engine.next(self.now, answer) {
                OwnershipAction::Wait(until) => return until,
                OwnershipAction::Call(call) => {
                    answer = self.answer(&call);
                    self.calls.push(call);
                }
            }
        }
        panic!("the node makes calls without an end: {:?}", self.calls);
    }

    /// Lets the node wait and make calls for this long.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let until = self.settle();
            if until >= end {
                break;
            }
            self.now = until;
        }
        self.now = end;
        self.settle();
    }

    /// Wants all of the partitions, and returns the notices.
    fn take(&mut self, partitions: &[u16]) -> Vec<OwnershipNotice> {
        self.engine.want(partitions.iter().copied().map(id));
        self.settle();
        self.engine.notices()
    }

    fn give_up(&mut self, (partition, epoch): (PartitionId, OwnerEpoch), to: Option<Owner>) {
        self.engine.give_up(self.now, GiveUp { partition, epoch, to });
    }

    fn changes(&mut self) -> Vec<Vec<OwnerChange>> {
        let changes = |call| match call {
            OwnershipCall::Change(changes) => Some(changes),
            _ => None,
        };
        std::mem::take(&mut self.calls).into_iter().filter_map(changes).collect()
    }
}

fn started(partition: u16, epoch: u32) -> OwnershipNotice {
    OwnershipNotice::Start(id(partition), OwnerEpoch(epoch))
}

/// A node that works on partition 0 under epoch 1.
fn working() -> World {
    let mut world = World::new(1, 10);
    assert_eq!(world.take(&[0]), [started(0, 1)]);
    world.calls.clear();
    world
}

#[test]
fn the_rows_are_read_before_the_leases_and_again_before_the_start() {
    let mut world = World::new(2, 10);
    world.rows.insert(id(1), row(4, None));
    assert_eq!(world.take(&[0, 1]), [started(0, 1), started(1, 5)]);
    use OwnershipCall::{Change, LookAtRows, ReadLeases, ReadRows};
    let change = |partition, from: OwnerRow| {
        let to = row(from.epoch.0 + 1, me());
        OwnerChange { partition: id(partition), from, to }
    };
    let take = Change(vec![change(0, OwnerRow::default()), change(1, row(4, None))]);
    assert_eq!(world.calls, [LookAtRows, ReadRows, ReadLeases, take, ReadRows]);
}

/// The taker stood still after its change. Its lease ended, and another node took the partition.
#[test]
fn a_partition_that_was_taken_again_before_its_start_does_not_start() {
    let mut world = World::new(1, 10);
    world.engine.want([id(0)]);
    let mut answer = OwnershipAnswer::None;
    loop {
        let OwnershipAction::Call(call) = world.engine.next(world.now, answer) else {
            panic!("the node waits before it has taken the partition")
        };
        answer = world.answer(&call);
        if matches!(call, OwnershipCall::Change(_)) {
            break;
        }
    }
    let taken = row(2, other());
    world.rows.insert(id(0), taken);
    let OwnershipAction::Call(OwnershipCall::ReadRows) = world.engine.next(world.now, answer)
    else {
        panic!("the rows are not read again")
    };
    let rows = OwnershipAnswer::Rows(world.rows.clone());
    let wait = world.engine.next(world.now, rows);
    assert_eq!(wait, OwnershipAction::Wait(Instant::FAR_FUTURE));
    assert_eq!(world.engine.notices(), [OwnershipNotice::Foreign(id(0), taken)]);
}

#[test]
fn a_partition_is_taken_from_nobody_and_from_an_owner_without_a_lease_alone() {
    let mut world = World::new(3, 10);
    world.rows = OwnerRowsView::from([(id(0), row(7, other())), (id(1), row(8, node(3)))]);
    assert_eq!(world.take(&[0, 1, 2]), [started(1, 9), started(2, 1)]);
    assert_eq!(world.rows[&id(0)], row(7, other()));
    // A server with a clock far ahead shows no leases at all.
    let mut world = World::new(1, 10);
    world.living = [other().incarnation].into();
    assert_eq!(world.take(&[0]), []);
    assert_eq!(world.rows, OwnerRowsView::new());
}

#[test]
fn a_change_has_at_most_as_many_rows_as_the_storage_takes() {
    let mut world = World::new(5, 2);
    assert_eq!(world.take(&[0, 1, 2, 3, 4]), [started(0, 1), started(1, 1)]);
    assert_eq!(world.take(&[2, 3, 4]), [started(2, 1), started(3, 1)]);
    assert!(world.changes().iter().all(|changes| changes.len() == 2));
    assert_eq!(world.take(&[4]), [started(4, 1)]);
    for partition in 0..5 {
        let (of, now) = ((id(partition), OwnerEpoch(1)), world.now);
        world.give_up(of, None);
        world.engine.ended(now, of.0, of.1, now, of.1);
    }
    world.calls.clear();
    world.settle();
    assert_eq!(world.changes().iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1]);
}

/// Two nodes took the partition at once, and the other one won.
#[test]
fn a_refused_take_is_decided_again_from_the_rows_that_are_there() {
    let mut world = World::new(2, 10);
    world.broken = Some(OwnershipAnswer::Refused([(id(0), row(1, other()))].into()));
    assert_eq!(world.take(&[0, 1]), []);
    assert_eq!(world.engine.row(id(0)), row(1, other()));
    world.rows.insert(id(0), row(1, other()));
    world.broken = None;
    assert_eq!(world.take(&[0, 1]), [started(1, 1)]);
}

/// The node wanted a partition while the storage did not answer. Then it began to drain, and the
/// balancer no longer wanted anything. The engine remembered the wish, and took the partition as
/// soon as the storage answered.
#[test]
fn a_wish_is_forgotten_after_a_call_that_failed() {
    for failed in [OwnershipCall::ReadRows, OwnershipCall::ReadLeases] {
        let mut world = World::new(1, 10);
        world.settle();
        world.silent = Some(failed);
        world.engine.want([id(0)]);
        world.settle();
        world.silent = None;
        world.pass(5 * SECOND);
        assert_eq!(world.engine.notices(), []);
        assert_eq!(world.take(&[0]), [started(0, 1)], "the host decides again");
    }
}

/// A change that failed again and again kept the node from looking at the rows.
#[test]
fn a_node_whose_changes_fail_still_notices_that_it_lost_a_partition() {
    for broken in [OwnershipAnswer::Unavailable, OwnershipAnswer::Unknown] {
        let mut world = World::new(2, 1);
        assert_eq!(world.take(&[0]), [started(0, 1)]);
        assert_eq!(world.take(&[1]), [started(1, 1)]);
        let (of, now) = ((id(0), OwnerEpoch(1)), world.now);
        world.give_up(of, None);
        world.engine.ended(now, of.0, of.1, now, of.1);
        world.broken = Some(broken);
        world.pass(5 * SECOND);
        assert!(world.changes().len() > 5, "the change is not sent again");
        world.rows.insert(id(1), row(2, other()));
        let _ = world.engine.notices();
        world.pass(LOOK_EVERY + SECOND / 2);
        assert_eq!(world.engine.notices(), [OwnershipNotice::Foreign(id(1), row(2, other()))]);
    }
}

/// The row of one of two partitions that had stopped was damaged. Each change named both rows and
/// was refused, so the other partition never left.
#[test]
fn a_partition_with_a_damaged_row_does_not_keep_others_from_leaving() {
    let mut world = World::new(2, 10);
    assert_eq!(world.take(&[0, 1]), [started(0, 1), started(1, 1)]);
    world.broken = Some(OwnershipAnswer::Unavailable);
    for partition in 0..2 {
        let (of, now) = ((id(partition), OwnerEpoch(1)), world.now);
        world.give_up(of, Some(other()));
        world.engine.ended(now, of.0, of.1, now, of.1);
    }
    world.pass(SECOND);
    let _ = world.engine.notices();
    assert!(world.changes().iter().all(|changes| changes.len() == 2));
    world.engine.set_aside(world.now, id(0));
    assert_eq!(world.engine.giving().len(), 1, "a drain waits for a damaged row");
    world.broken = None;
    let damaged = world.rows.remove(&id(0)).unwrap();
    world.pass(SECOND);
    assert_eq!(world.engine.notices(), [OwnershipNotice::Left(id(1))]);
    assert_eq!(world.rows[&id(1)], row(2, other()));
    // An operator restores the row.
    world.rows.insert(id(0), damaged);
    world.pass(90 * SECOND);
    assert_eq!(world.engine.notices(), [OwnershipNotice::Left(id(0))]);
    assert_eq!(world.rows[&id(0)], row(2, other()));
}

/// The row of a partition that worked was damaged. A read before the start of another partition did
/// not show the row, and the node ended all its work.
#[test]
fn a_partition_with_a_damaged_row_does_not_end_the_work_of_the_node() {
    let mut world = World::new(2, 10);
    assert_eq!(world.take(&[0]), [started(0, 1)]);
    world.rows.remove(&id(0));
    assert_eq!(world.take(&[1]), [started(1, 1)]);
    world.pass(5 * SECOND);
    assert_eq!(world.engine.notices(), []);
    // The row says that somebody else owns the partition.
    world.rows.insert(id(0), row(2, other()));
    world.pass(LOOK_EVERY);
    assert_eq!(world.engine.notices(), [OwnershipNotice::Foreign(id(0), row(2, other()))]);
}

#[test]
fn a_node_that_lost_a_partition_makes_no_call_any_more() {
    let mut world = World::new(3, 10);
    assert_eq!(world.take(&[0, 1]), [started(0, 1), started(1, 1)]);
    world.rows.insert(id(0), row(2, other()));
    world.pass(LOOK_EVERY);
    assert_eq!(world.engine.notices(), [OwnershipNotice::Foreign(id(0), row(2, other()))]);
    world.calls.clear();
    world.give_up((id(1), OwnerEpoch(1)), None);
    assert_eq!(world.take(&[2]), []);
    world.pass(10 * SECOND);
    assert_eq!(world.calls, []);
}

/// Partition 0 has stopped, and its handover has no answer. The rows still show this node. If the
/// node started the partition again, the handover could land, and two nodes would work.
#[test]
fn a_partition_that_has_stopped_never_starts_again_under_its_epoch() {
    let mut world = working();
    let (of, now) = ((id(0), OwnerEpoch(1)), world.now);
    world.give_up(of, Some(other()));
    assert_eq!(world.engine.notices(), [OwnershipNotice::Stop(of.0, of.1)]);
    world.pass(3 * SECOND);
    assert_eq!(world.changes(), [] as [Vec<OwnerChange>; 0], "the partition has not stopped yet");
    world.engine.ended(now, of.0, of.1, now, of.1);
    world.broken = Some(OwnershipAnswer::Unknown);
    world.engine.want([id(0)]);
    world.pass(3 * SECOND);
    // The wish to give the partition to nobody changes nothing: the first change may still land.
    world.give_up(of, None);
    world.pass(3 * SECOND);
    let to = row(2, other());
    let change = OwnerChange { partition: id(0), from: row(1, me()), to };
    let changes = world.changes();
    assert!(changes.len() > 5 && changes.iter().all(|sent| *sent == [change]), "{changes:?}");
    assert_eq!(world.engine.notices(), []);
    world.rows.insert(id(0), to);
    world.pass(LOOK_EVERY);
    assert_eq!(world.engine.notices(), [OwnershipNotice::Left(id(0))]);
}

#[test]
fn the_owner_changes_only_when_nothing_can_be_sent_any_more() {
    for (to, after) in [(Some(other()), row(2, other())), (None, row(1, None))] {
        let mut world = working();
        let of = (id(0), OwnerEpoch(1));
        // Another epoch is another start: its end says nothing.
        world.give_up((of.0, OwnerEpoch(2)), to);
        assert_eq!(world.engine.notices(), []);
        world.give_up(of, to);
        assert_eq!(world.engine.notices(), [OwnershipNotice::Stop(of.0, of.1)]);
        let safe_at = world.now + 27 * SECOND;
        world.engine.ended(world.now, of.0, OwnerEpoch(2), world.now, of.1);
        world.engine.ended(world.now, of.0, of.1, safe_at, of.1);
        world.pass(27 * SECOND - Duration::from_nanos(1));
        assert_eq!(world.rows[&id(0)], row(1, me()));
        assert_eq!(world.engine.notices(), []);
        world.pass(Duration::from_nanos(1));
        assert_eq!(world.rows[&id(0)], after);
        assert_eq!(world.engine.notices(), [OwnershipNotice::Left(id(0))]);
        assert_eq!(world.take(&[]), []);
    }
}

#[test]
fn a_partition_that_ended_starts_again_above_the_epoch_of_its_log_after_a_pause() {
    let mut world = working();
    let mut epoch = 1;
    for (pause, log_epoch, next) in [(1, 1, 2), (2, 9, 10), (4, 10, 11), (8, 3, 12), (16, 12, 13)] {
        let of = (id(0), OwnerEpoch(epoch));
        world.engine.ended(world.now, of.0, of.1, world.now, OwnerEpoch(log_epoch));
        world.pass(pause * SECOND - Duration::from_nanos(1));
        assert_eq!(world.engine.notices(), [], "{pause}");
        world.pass(Duration::from_nanos(1));
        assert_eq!(world.engine.notices(), [started(0, next)], "{pause}");
        assert_eq!(world.rows[&id(0)], row(next, me()));
        epoch = next;
    }
    for _ in 0..5 {
        let of = (id(0), OwnerEpoch(epoch));
        world.engine.ended(world.now, of.0, of.1, world.now, of.1);
        world.pass(60 * SECOND);
        epoch += 1;
        assert_eq!(world.engine.notices(), [started(0, epoch)], "a pause is at most a minute");
    }
    // The partition has worked for as long as the longest pause.
    world.pass(60 * SECOND);
    let of = (id(0), OwnerEpoch(epoch));
    world.engine.ended(world.now, of.0, of.1, world.now, of.1);
    world.pass(SECOND);
    assert_eq!(world.engine.notices(), [started(0, epoch + 1)]);
}

/// A draining node gave away only partitions that worked. A partition that had failed stayed until
/// its restart, for up to a minute.
#[test]
fn a_partition_that_waits_for_its_restart_can_be_given_up() {
    for (to, after) in [(Some(other()), row(2, other())), (None, row(1, None))] {
        let mut world = working();
        let of = (id(0), OwnerEpoch(1));
        let safe_at = world.now + SECOND / 2;
        world.engine.ended(world.now, of.0, of.1, safe_at, of.1);
        assert_eq!(world.engine.giving(), []);
        world.give_up(of, to);
        assert_eq!(world.engine.giving(), [GiveUp { partition: of.0, epoch: of.1, to }]);
        world.pass(SECOND / 2 - Duration::from_nanos(1));
        assert_eq!(world.rows[&id(0)], row(1, me()), "a write may still land");
        world.pass(Duration::from_nanos(1));
        assert_eq!(world.rows[&id(0)], after);
        assert_eq!(world.engine.notices(), [OwnershipNotice::Left(id(0))]);
        assert_eq!(world.engine.giving(), []);
    }
}

/// The restart has no answer, so it may have been made or may still land.
#[test]
fn a_partition_whose_restart_was_sent_is_not_given_up() {
    let mut world = working();
    let of = (id(0), OwnerEpoch(1));
    world.engine.ended(world.now, of.0, of.1, world.now, of.1);
    world.broken = Some(OwnershipAnswer::Unknown);
    world.pass(SECOND);
    world.give_up(of, Some(other()));
    assert_eq!(world.engine.giving(), []);
    world.broken = None;
    world.pass(SECOND);
    assert_eq!(world.engine.notices(), [started(0, 2)]);
}

#[test]
fn a_partition_is_on_its_way_until_its_row_has_changed() {
    let mut world = working();
    let of = (id(0), OwnerEpoch(1));
    let step = GiveUp { partition: of.0, epoch: of.1, to: Some(other()) };
    world.give_up(of, step.to);
    assert_eq!(world.engine.giving(), [step]);
    world.engine.ended(world.now, of.0, of.1, world.now, of.1);
    world.broken = Some(OwnershipAnswer::Unknown);
    world.pass(SECOND);
    // Another wish comes too late.
    world.give_up(of, None);
    assert_eq!(world.engine.giving(), [step]);
    world.broken = None;
    world.pass(SECOND);
    assert_eq!(world.engine.giving(), []);
}

/// A plain read may show a former row.
#[test]
fn a_plain_read_that_shows_a_former_row_is_ignored() {
    let mut world = working();
    let now = world.rows.clone();
    world.rows = OwnerRowsView::new();
    world.pass(LOOK_EVERY);
    assert_eq!(world.calls, [OwnershipCall::LookAtRows]);
    assert_eq!(world.engine.notices(), []);
    assert_eq!(world.engine.rows(), &now);
}

/// Two nodes shared an application, and one of them had another one alone. The other node did not
/// count the partitions of the application that it did not have, and took too few of the shared
/// one.
#[test]
fn the_rows_of_partitions_that_the_node_cannot_work_on_are_known_and_nothing_follows() {
    let mut world = World::new(1, 10);
    let others = [(7, other()), (8, me())];
    let others =
        others.map(|(partition, owner)| (PartitionId { app: 2, partition }, row(3, owner)));
    world.rows = OwnerRowsView::from(others);
    world.engine.want(others.map(|(id, _)| id));
    world.pass(LOOK_EVERY);
    assert_eq!(world.engine.notices(), []);
    assert!(others.iter().all(|(id, row)| world.engine.row(*id) == *row));
    // An epoch never falls, although a plain read may show a former row.
    world.rows.insert(others[0].0, row(2, me()));
    world.pass(LOOK_EVERY);
    assert_eq!(world.engine.row(others[0].0), others[0].1);
    assert_eq!(world.changes(), Vec::<Vec<OwnerChange>>::new());
}

#[test]
fn the_highest_epoch_is_never_passed() {
    let mut world = World::new(2, 10);
    let (last, before) = (OwnerEpoch::MAX.0, OwnerEpoch::MAX.0 - 1);
    world.rows = OwnerRowsView::from([(id(0), row(last, None)), (id(1), row(before, None))]);
    let notices = world.take(&[0, 1]);
    assert_eq!(notices, [OwnershipNotice::NoEpochLeft(id(0)), started(1, last)]);
    let (of, now) = ((id(1), OwnerEpoch::MAX), world.now);
    world.give_up(of, Some(other()));
    let _ = world.engine.notices();
    world.engine.ended(now, of.0, of.1, now, of.1);
    world.pass(5 * SECOND);
    assert_eq!(world.engine.notices(), [OwnershipNotice::NoEpochLeft(id(1))]);
    assert_eq!(world.rows[&id(1)], row(last, me()));
}

/// Another node handed the partition over, or a take without an answer was made after all.
#[test]
fn a_partition_that_was_given_to_this_node_starts_after_another_read() {
    let mut world = World::new(1, 10);
    world.settle();
    world.rows.insert(id(0), row(6, me()));
    world.calls.clear();
    world.pass(LOOK_EVERY);
    assert_eq!(world.calls, [OwnershipCall::LookAtRows, OwnershipCall::ReadRows]);
    assert_eq!(world.engine.notices(), [started(0, 6)]);
}
