//! Strays: rows of a leader of level 2 that had lost its leadership, in an application that has
//! another level by now.

use std::time::Duration;

use eventlog::{
    AppRow, Entry, Epoch, EventPlace, Offset, RecordId, StoredRecord, TrustLevel, Version, WsId,
};
use istorage::{AppStorageExt, Order, OrderedPut, bytes::Bytes};
use processor::{Command, Done, IdempotencyKey, PartitionEnd, Status};
use shop::{ShopNode, WriteSteps, article, update};
use tck::trial::{Trial, trials};

use crate::{
    fixture::CommandsFixture,
    sabotage::{SabotagedRow, places, stored},
    scene::{LEVELS, Scene, WriteSetup, play, sample, write_setups},
};

pub(crate) const TRIALS: &[Trial<CommandsFixture>] = trials!(strays:
    commands_replace_the_rows_of_a_former_leader_of_level_2
        = |fixture| left_behind(fixture, ReplacedBy::Command),
    a_recovery_replaces_the_rows_of_a_former_leader_of_level_2
        = |fixture| left_behind(fixture, ReplacedBy::Recovery),
    a_record_that_a_former_leader_updated_gets_the_update_of_the_log = updated,
    only_rows_that_level_2_put_are_replaced = foreign,
);

use TrustLevel::{One, Two, Zero};

/// The steps of all setups of a level.
fn steps(fixture: &CommandsFixture) -> Vec<Option<WriteSteps>> {
    let of_level = |setup: &WriteSetup| setup.level == Zero;
    write_setups(fixture).into_iter().filter(of_level).map(|setup| setup.narrow).collect()
}

/// Starts a leader that stores no numbers.
async fn leader(scene: &Scene<'_>) -> ShopNode {
    let mut settings = scene.settings(scene.storage());
    settings.partition.sequencer.flush_delay = Duration::from_secs(600);
    let node = scene.fixture.shop_db.node(scene.partition, settings);
    node.ready().await;
    node
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplacedBy {
    Command,
    Recovery,
}

async fn left_behind(fixture: &CommandsFixture, replaced: ReplacedBy) {
    let mut cases = Vec::new();
    for narrow in steps(fixture) {
        for level in [Zero, One] {
            cases.extend(
                [(true, true), (true, false), (false, false)].map(|kind| (narrow, level, kind)),
            );
        }
    }
    play(sample(fixture, cases), 0, async |partition, (narrow, level, (in_front, updates))| {
        let setup = WriteSetup { level: Two, narrow };
        let mut scene = Scene::new(fixture, partition, setup).await;
        let lost = LostEvents::leave(&scene, in_front, updates).await;
        scene.set_level(level, lost.last);
        lost.replace(&scene, replaced).await;
        let next = scene.next().await;
        scene.run(&next, scene.changes("next")).await.unwrap();
        assert_eq!(next.stop().await, PartitionEnd::Stopped);
        // The update of the lost event stays until the record is updated again.
        scene.check(updates.then_some(lost.last)).await;
    })
    .await;
}

/// The requests of the lost events.
const LOST: [&str; 3] = ["first lost", "second lost", "third lost"];

/// Three events of a former leader of level 2, in a workspace that nobody else uses. They are not
/// in the log, and their other rows are still there.
struct LostEvents {
    events: [Done; 3],
    /// The end of the log.
    end: Offset,
    /// A record that the first event updates.
    updated: Option<RecordId>,
    /// The epoch of the leader after the former one.
    last: Epoch,
}

impl LostEvents {
    /// With `in_front`, the log has another event in the place of the first lost event. Otherwise
    /// all of them are past the end of the log.
    async fn leave(scene: &Scene<'_>, in_front: bool, updates: bool) -> LostEvents {
        let node = scene.next().await;
        let command = scene.command("other article", scene.other, article("old"));
        let id = scene.run(&node, command).await.unwrap().answer.ids[0].1;
        assert_eq!(node.stop().await, PartitionEnd::Stopped);

        let former = leader(scene).await;
        scene.begin_work(&former, scene.ws).await;
        let next = scene.next().await;
        let command = scene.command("in the place", scene.ws, article("in the place"));
        let end = scene.run(&next, command).await.unwrap().plog.next();
        if !in_front {
            let command = scene.command("replaced", scene.ws, article("replaced"));
            scene.run(&former, command).await.unwrap();
            scene.forget(["replaced"]);
        }
        let updated = updates.then_some(id);
        let first = scene.run(&former, lost(scene, LOST[0], updated)).await.unwrap();
        assert_eq!(first.plog < end, in_front);
        let second = scene.run(&former, lost(scene, LOST[1], None)).await.unwrap();
        let third = scene.run(&former, lost(scene, LOST[2], None)).await.unwrap();
        former.kill();
        assert_eq!(next.stop().await, PartitionEnd::Stopped);
        scene.forget(LOST);
        let events = [first, second, third];
        for row in events.iter().flat_map(|done| LostEvents::rows(scene, end, done)) {
            assert!(stored(scene, row).await.is_some(), "{row} was left behind");
        }
        LostEvents { events, end, updated, last: next.log.fence().epoch() }
    }

    /// The rows that a lost event left behind.
    fn rows(scene: &Scene<'_>, end: Offset, done: &Done) -> Vec<AppRow> {
        let ws = WsId(scene.other);
        let mut rows = vec![AppRow::Wlog(ws, done.wlog)];
        rows.extend((done.plog >= end).then_some(AppRow::Plog(scene.partition, done.plog)));
        rows.extend(done.answer.ids.iter().map(|(_, id)| AppRow::Record(ws, *id)));
        rows
    }

    /// Sends the commands of the lost events again, the second one first. Their events get the
    /// places and the numbers of the lost ones.
    async fn replace(&self, scene: &Scene<'_>, replaced: ReplacedBy) {
        let again = [1, 0, 2];
        if replaced == ReplacedBy::Recovery {
            // The first write meets the event past the end of the log.
            let command = lost(scene, LOST[again[0]], self.updated);
            let epoch = scene.leave_an_event(command, 2).await;
            let row = AppRow::Plog(scene.partition, self.end);
            let place =
                Entry::from_bytes(&stored(scene, row).await.unwrap()).unwrap().place().unwrap();
            assert_eq!((place.epoch, place.wlog), (epoch, self.events[0].wlog));
        }
        let node = scene.next().await;
        // Where writes land late, the leader fences its log before it repeats an answer.
        let is_late = !scene.storage().capabilities().late_write.is_zero();
        let mut fences = 0;
        for (turn, (place, request)) in self.events.iter().zip(again).enumerate() {
            let is_in_log = replaced == ReplacedBy::Recovery && turn == 0;
            let command = lost(scene, LOST[request], self.updated.filter(|_| turn == 0));
            let done = scene.run(&node, command).await.unwrap();
            assert_eq!(done.is_repeated, is_in_log, "an answer counts only with its event");
            assert_eq!((done.plog.0, done.wlog), (self.end.0 + turn as u64 + fences, place.wlog));
            fences += u64::from(is_in_log && is_late);
            assert_eq!(done.answer.ids, place.answer.ids, "numbers of lost events are free");
        }
        assert_eq!(node.stop().await, PartitionEnd::Stopped);
    }
}

/// A command that may be sent again, and that makes an article.
fn lost(scene: &Scene<'_>, request: &str, updated: Option<RecordId>) -> Command {
    let mut rows = article("again");
    rows.extend(updated.map(|id| update(id, None, request)));
    let repeat = Some(IdempotencyKey::new("joe", request.as_bytes(), b"body"));
    Command { idempotency_key: repeat, ..scene.command(request, scene.other, rows) }
}

/// At level 0 a record was made, so that it hides ordered writes where all rows of a group are one
/// atomic write. At level 2 a leader read it, and put an event that updates it. Before the record
/// was written, a former leader updated it, under a condition.
async fn updated(fixture: &CommandsFixture) {
    let mut cases = Vec::new();
    for narrow in steps(fixture) {
        cases.extend(LEVELS.map(|level| (narrow, level)));
    }
    play(sample(fixture, cases), 0, async |partition, (narrow, level)| {
        let setup = WriteSetup { level: Zero, narrow };
        let mut scene = Scene::new(fixture, partition, setup).await;
        scene.set_level(Two, Epoch(0));
        let former = leader(&scene).await;
        scene.begin_work(&former, scene.other).await;
        let change = |called| vec![update(scene.article, None, called)];
        let command = scene.command("left", scene.ws, change("left"));
        let last = scene.leave_an_event(command, 1).await;
        let command = scene.command("lost", scene.ws, change("lost"));
        let lost = scene.run(&former, command).await.unwrap();
        former.kill();
        scene.forget(["lost"]);
        let row = AppRow::Record(WsId(scene.ws), scene.article);
        let version = |stored: Option<Bytes>| row.record(&stored.unwrap()).unwrap().version;
        assert_eq!(version(stored(&scene, row).await), lost.version());

        scene.set_level(level, last);
        let node = scene.next().await;
        assert_eq!(version(stored(&scene, row).await), Version { epoch: last, plog: lost.plog });
        scene.run(&node, scene.changes("after")).await.unwrap();
        assert_eq!(node.stop().await, PartitionEnd::Stopped);
        scene.check(None).await;
    })
    .await;
}

/// How a row came into the place of the next write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    Plainly,
    Conditionally,
    /// By an order, under an epoch when level 2 wrote.
    ByLevel2,
    /// By an order, under a later epoch.
    AfterLevel2,
}

/// All rows can be read, and belong in their places. Their event is not in the log.
async fn foreign(fixture: &CommandsFixture) {
    let mut cases = Vec::new();
    for narrow in steps(fixture) {
        for place in [SabotagedRow::Plog, SabotagedRow::Wlog, SabotagedRow::NewRecord] {
            let ways =
                [Written::Plainly, Written::Conditionally, Written::ByLevel2, Written::AfterLevel2];
            cases.extend(ways.map(|written| (narrow, place, written)));
        }
    }
    play(cases, 0, async |partition, (narrow, place, written)| {
        let setup = WriteSetup { level: Two, narrow };
        let mut scene = Scene::new(fixture, partition, setup).await;
        let node = scene.next().await;
        scene.run(&node, scene.command("of level 2", scene.other, article("a"))).await.unwrap();
        assert_eq!(node.stop().await, PartitionEnd::Stopped);
        let last = node.log.fence().epoch();
        scene.set_level(Zero, last);
        // The first epoch after level 2.
        scene.next().await.kill();
        let node = scene.next().await;
        let command = scene.command("before", scene.other, article("before"));
        let before = scene.run(&node, command).await.unwrap();

        let epoch = match written {
            Written::AfterLevel2 => scene.stray_before,
            Written::Plainly | Written::Conditionally | Written::ByLevel2 => last,
        };
        let (row, bytes) = bytes_of(&scene, place, epoch, before.plog.next()).await;
        put(&scene, row, &bytes, (written, epoch)).await;
        let answer = scene.run(&node, scene.changes("meets the row")).await;
        if written == Written::ByLevel2 {
            answer.unwrap();
            assert_eq!(node.stop().await, PartitionEnd::Stopped);
            scene.next().await.stop().await;
            scene.check(None).await;
            return;
        }
        assert!(answer.is_err(), "{answer:?}");
        let status = node.until(|status| matches!(status, Status::Violation(_))).await;
        assert!(status_names(&status, row), "{status:?}");
        assert_eq!(stored(&scene, row).await, Some(bytes), "{row} stays");
        node.kill();
    })
    .await;
}

fn status_names(status: &Status, row: AppRow) -> bool {
    matches!(status, Status::Violation(what) if what.contains(&row.to_string()))
}

/// Returns a row that the next command is to write, and bytes of this row that an event of another
/// place would leave there. The log ends before `end`.
async fn bytes_of(
    scene: &Scene<'_>,
    place: SabotagedRow,
    epoch: Epoch,
    end: Offset,
) -> (AppRow, Bytes) {
    let (row, another) = places(scene, place);
    let bytes = stored(scene, another).await.unwrap();
    let ws = WsId(scene.ws);
    let event = |plog, wlog| {
        let Entry::Event(mut event) = Entry::from_bytes(&bytes).unwrap() else {
            panic!("no event")
        };
        event.place = EventPlace { epoch, plog, ws, wlog };
        Entry::Event(event).to_bytes()
    };
    match row {
        AppRow::Plog(partition, _) => {
            (AppRow::Plog(partition, end), event(end, Offset(end.0 + 1_000)))
        }
        AppRow::Wlog(_, wlog) => (row, event(end.next(), wlog)),
        AppRow::Record(_, id) => {
            let mut stored = StoredRecord::from_bytes(&bytes).unwrap();
            stored.record.id = id;
            stored.version = Version { epoch, plog: end.next() };
            (row, stored.to_bytes())
        }
        row => panic!("{row}"),
    }
}

async fn put(scene: &Scene<'_>, row: AppRow, bytes: &Bytes, (written, epoch): (Written, Epoch)) {
    let shop_db = &scene.fixture.shop_db;
    let (storage, soon) = (&shop_db.app.storage, shop_db.soon());
    let (key, value) = (row.key(), bytes.clone());
    match written {
        Written::Plainly => storage.put(key, value, soon).await.unwrap(),
        Written::Conditionally => {
            let inserted = storage.insert_if_not_exists(key, value, None, soon).await;
            assert!(inserted.unwrap().is_applied());
        }
        Written::ByLevel2 | Written::AfterLevel2 => {
            let order = Order::from_parts(epoch.0, 1_000).unwrap();
            let put = OrderedPut { key, value, order, ttl: None };
            storage.put_ordered(vec![put], soon).await.unwrap();
        }
    }
}
