//! A write of a former leader that lands after the next leader has rejected the same command, or
//! while the next leader has nothing to do.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use eventlog::{AppRow, Entry, Offset, WsId};
use futures::TryStreamExt;
use istorage::{AppStorageExt, CallKind, Outcome, SharedStorage};
use processor::{Busy, Command, IdempotencyKey, PartitionEnd, Refused, RejectionKind, Status};
use seqstorage::{MarkError, PartitionStorage};
use shop::{LateStorage, ShopNode, StallingStorage, TestFence, article, create_workspace, cud};
use tck::{
    storage::{Fault, Faulty},
    trial::{Trial, finding_of, trials},
};

use crate::{
    fixture::{CommandsFixture, PARTITIONS, named},
    scene::{Scene, WriteSetup, play, write_setups},
};

pub(crate) const TRIALS: &[Trial<CommandsFixture>] = trials!(fencing:
    a_command_that_was_rejected_for_good_is_never_done
        = |fixture| everywhere(fixture, after_a_rejection),
    a_late_event_in_front_of_a_rejection_is_found = |fixture| everywhere(fixture, before_a_rejection),
    an_idle_leader_fences_its_log = |fixture| everywhere(fixture, fenced_while_idle),
    an_idle_leader_finds_a_late_event = |fixture| everywhere(fixture, found_while_idle),
    a_leader_that_only_repeats_answers_fences_its_log
        = |fixture| everywhere(fixture, fenced_by_repeated_answers),
    a_damaged_fencing_entry_is_written_again = |fixture| everywhere(fixture, damaged),
    no_leader_fences_its_log_where_no_write_lands_late = nothing_is_late,
);

/// A wrong storage, and the finding that these trials must have.
pub(crate) const FOUND: &[Trial<CommandsFixture>] = trials!(found_by_fencing:
    a_storage_that_denies_late_writes = denied,
);

/// The scenes find a storage that says that no write lands late, so that no leader fences its log.
async fn denied(fixture: &CommandsFixture) {
    let setup = write_setups(fixture).into_iter().next().unwrap();
    let found = finding_of(async {
        play(vec![setup], 1, async |partition, setup| {
            after_a_rejection(Former::of(fixture, partition, setup, false).await).await;
        })
        .await;
    });
    let found = found.await.expect("a command was rejected, and then done");
    assert!(found.contains("is_repeated: true"), "{found}");
}

/// A time longer than any trial.
const NEVER: Duration = Duration::from_secs(3_600);

/// The time within which an idle leader fences its log: an idle check, with room for a slow
/// machine.
const SOON: Duration = Duration::from_secs(30);

async fn everywhere(fixture: &CommandsFixture, scene: impl AsyncFn(Former<'_>) + Copy) {
    let cases = write_setups(fixture);
    play(cases, 1, async |partition, setup| {
        scene(Former::new(fixture, partition, setup).await).await;
    })
    .await;
}

/// A leader whose last write got no answer, and that has lost its leadership. The write holds one
/// group: it makes a workspace, and a record in this workspace.
struct Former<'s> {
    scene: Scene<'s>,
    /// The workspace that the open group makes.
    ws: u64,
    faulty: Arc<Faulty>,
    /// Whether the storage says that writes may land late.
    is_late: bool,
}

impl<'s> Former<'s> {
    async fn new(fixture: &'s CommandsFixture, partition: u16, setup: WriteSetup) -> Former<'s> {
        Former::of(fixture, partition, setup, true).await
    }

    async fn of(
        fixture: &'s CommandsFixture,
        partition: u16,
        setup: WriteSetup,
        is_late: bool,
    ) -> Former<'s> {
        let scene = Scene::new(fixture, partition, setup).await;
        let ws = scene.other + u64::from(PARTITIONS);
        let lead = scene.next().await;
        scene.begin_work(&lead, scene.other).await;
        // The next leader has the next epoch.
        let fence = TestFence::of(lead.log.fence().epoch().0);
        assert_eq!(lead.stop().await, PartitionEnd::Stopped);
        let (is_armed, lost) = (Arc::new(AtomicBool::new(false)), Arc::clone(&fence));
        let armed = Arc::clone(&is_armed);
        let script = move |call| {
            let is_write =
                matches!(call, CallKind::PutOrdered | CallKind::WriteIf | CallKind::WriteAtomic);
            if !is_write || !armed.swap(false, Ordering::SeqCst) {
                return Fault::None;
            }
            lost.lose();
            Fault::AppliedLate(NEVER)
        };
        let clock = fixture.shop_db.clock.clone();
        let faulty = Arc::new(Faulty::scripted(late(&scene), clock, script));
        let hold = StallingStorage::new(Arc::clone(&faulty) as SharedStorage);
        let former = Former { scene, ws, faulty, is_late };
        let settings = former.scene.settings(Arc::new(hold.clone()));
        let node = fixture.shop_db.node_of(partition, fence, settings);
        node.ready().await;
        is_armed.store(true, Ordering::SeqCst);
        let create = named("create late", create_workspace(ws, fixture.shop_db.soon()));
        let group = vec![former.keyed(create), former.late_command()];
        former.scene.run_group(&node, &hold, group).await;
        for request in ["create late", "late"] {
            let answer = former.scene.answer(request).unwrap();
            assert!(matches!(answer, Err(Refused::Unknown(_))), "{answer:?}");
        }
        node.until(|status| matches!(status, Status::LeadershipLost(_) | Status::Failed(_))).await;
        node.kill();
        former
    }

    fn keyed(&self, command: Command) -> Command {
        let key = command.request.clone();
        let repeat = IdempotencyKey::new("joe", key.as_bytes(), b"body");
        Command { idempotency_key: Some(repeat), ..command }
    }

    /// The command in the workspace that the same group makes.
    fn late_command(&self) -> Command {
        let rows = cud(self.ws, article("late"), self.scene.fixture.shop_db.soon());
        self.keyed(named("late", rows))
    }

    async fn next(&self) -> ShopNode {
        let storage = match self.is_late {
            true => late(&self.scene),
            false => self.scene.storage(),
        };
        let settings = self.scene.settings(storage);
        let node = self.scene.fixture.shop_db.node(self.scene.partition, settings);
        node.ready().await;
        node
    }

    /// Lets the open write land. Returns whether it was applied.
    async fn land(&self) -> bool {
        let landed = self.faulty.land_late_writes().await;
        assert_eq!(landed.len(), 1, "{landed:?}");
        matches!(landed[0], Ok(Outcome::Applied))
    }

    /// The leader works once more and stops, another one starts and stops, and everything that is
    /// stored is checked. A leader that has found a late event shows it a moment before it takes
    /// commands.
    async fn check(self, node: ShopNode) {
        self.scene.until_done(&node, || self.scene.changes("last")).await;
        assert_eq!(node.stop().await, PartitionEnd::Stopped);
        let third = self.next().await;
        assert_eq!(third.stop().await, PartitionEnd::Stopped);
        self.scene.check(None).await;
    }
}

/// The storage of a scene, which says on every driver that writes may land late.
fn late(scene: &Scene<'_>) -> SharedStorage {
    LateStorage::of(scene.storage())
}

/// The entries of the log from `from` on, as the leader shows them.
async fn shown(node: &ShopNode, from: Offset) -> Vec<Entry> {
    match node.commands.plog(from) {
        Ok(entries) => entries.try_collect().await.unwrap(),
        Err(_) => Vec::new(),
    }
}

/// Waits until the leader shows an entry of this offset.
async fn until_shown(former: &Former<'_>, node: &ShopNode, offset: Offset) -> Entry {
    let clock = &former.scene.fixture.shop_db.clock;
    let until = clock.now() + SOON;
    loop {
        if let Some(entry) = shown(node, offset).await.into_iter().next() {
            return entry;
        }
        assert!(clock.now() < until, "nothing was found at {offset:?}");
        clock.sleep(Duration::from_millis(20)).await;
    }
}

/// Leader A's insert of a group got no answer: it makes a workspace, and a keyed command makes a
/// record in it. A lost its lease. The client sent the keyed command again, and leader B rejected
/// it, because the workspace did not exist. The rejection counts as settled. Then the insert of A
/// landed, the next command of B met it, and B applied it. So the command was done, although it was
/// refused for good.
async fn after_a_rejection(former: Former<'_>) {
    let next = former.next().await;
    let rejected = former.scene.run(&next, former.late_command()).await.unwrap_err();
    let is_right =
        matches!(&rejected, Refused::Rejected(why) if why.kind == RejectionKind::NotFound);
    assert!(is_right, "{rejected:?}");
    former.land().await;
    // The next command meets the late events, if they are in the log.
    former.scene.until_done(&next, || former.scene.changes("second")).await;
    next.ready().await;
    let again = former.scene.run(&next, former.late_command()).await;
    assert!(matches!(again, Err(Refused::Rejected(_))), "{again:?}");
    former.check(next).await;
}

/// The insert lands after the next leader has read the log, and before the command is sent again.
async fn before_a_rejection(former: Former<'_>) {
    let next = former.next().await;
    let from = next.log.tail().next;
    let was_applied = former.land().await;
    let first = former.scene.run(&next, former.late_command()).await;
    if was_applied {
        // The command meets the event, unless the idle leader found it before.
        let is_right = match &first {
            Ok(done) => done.is_repeated,
            Err(Refused::Busy(Busy::Storage(_) | Busy::Recovering(_))) => true,
            Err(_) => false,
        };
        assert!(is_right, "{first:?}");
        let done = former.scene.until_done(&next, || former.late_command()).await;
        assert_eq!((done.is_repeated, done.plog), (true, from.next()));
    }
    former.check(next).await;
}

/// A late event of a former leader stayed invisible until the next command, which could come days
/// later. Now an idle leader writes a fencing entry, and the late event is refused.
async fn fenced_while_idle(former: Former<'_>) {
    let next = former.next().await;
    let end = next.log.tail().next;
    let entry = until_shown(&former, &next, end).await;
    assert!(matches!(entry, Entry::Fencing(_)), "{entry:?}");
    former.land().await;
    former.scene.until_done(&next, || former.scene.changes("second")).await;
    let entries = shown(&next, end).await;
    let fencings = entries.iter().filter(|entry| matches!(entry, Entry::Fencing(_))).count();
    assert_eq!((entries.len(), fencings), (2, 1), "one entry fences the log: {entries:?}");
    former.check(next).await;
}

/// The late event lands before the leader has fenced its log. The leader finds it without a
/// command.
async fn found_while_idle(former: Former<'_>) {
    let next = former.next().await;
    let end = next.log.tail().next;
    let was_applied = former.land().await;
    let entry = until_shown(&former, &next, end).await;
    // A slow machine may have fenced the log before.
    assert_eq!(was_applied, matches!(entry, Entry::Event(_)), "{entry:?}");
    former.check(next).await;
}

/// A leader that gets only commands that were done before is never idle.
async fn fenced_by_repeated_answers(former: Former<'_>) {
    let done = former.next().await;
    former.scene.run(&done, former.scene.repeatable()).await.unwrap();
    assert_eq!(done.stop().await, PartitionEnd::Stopped);
    let next = former.next().await;
    let end = next.log.tail().next;
    let again = former.scene.run(&next, former.scene.repeatable()).await.unwrap();
    assert!(again.is_repeated);
    let entries = shown(&next, end).await;
    assert!(matches!(&entries[..], [Entry::Fencing(_)]), "{entries:?}");
    former.land().await;
    former.check(next).await;
}

/// A fencing entry has no workspace, so it could not be marked, and the partition did not start. An
/// operator writes it again. A row of an event is not taken for a fencing entry.
async fn damaged(former: Former<'_>) {
    let scene = &former.scene;
    let next = former.next().await;
    let end = next.log.tail().next;
    let whole = until_shown(&former, &next, end).await;
    scene.run(&next, scene.changes("behind")).await.unwrap();
    assert_eq!(next.stop().await, PartitionEnd::Stopped);
    former.land().await;

    let row = AppRow::Plog(scene.partition, end);
    let mut flipped = whole.to_bytes().to_vec();
    *flipped.last_mut().unwrap() ^= 1;
    overwrite(scene, row, &flipped.into()).await;
    let settings = scene.settings(late(scene));
    let node = scene.fixture.shop_db.node(scene.partition, settings);
    let log = Arc::clone(&node.log);
    let operator = PartitionStorage::in_view(log);
    let is_readable = operator.plan_fencing(end.next(), false).await;
    assert!(matches!(is_readable, Err(MarkError::Readable(_))), "{is_readable:?}");
    let as_event = operator.plan_marker(end, WsId(scene.ws), Offset(9), None, false, &[]).await;
    assert!(matches!(as_event, Err(MarkError::IsFencing)), "{as_event:?}");
    let plan = operator.plan_fencing(end, false).await.unwrap();
    operator.restore_fencing(&plan).await.unwrap();
    node.ready().await;
    let again = shown(&node, end).await;
    assert!(matches!(again[0], Entry::Fencing(again) if again.plog == end), "{again:?}");
    assert_eq!(node.stop().await, PartitionEnd::Stopped);

    // The bytes name nothing, and the log of a workspace has the event.
    let of_event = AppRow::Plog(scene.partition, end.next());
    let there = stored(scene, of_event).await;
    let damaged_bytes = Bytes::from_static(b"damaged");
    overwrite(scene, of_event, &damaged_bytes).await;
    let was_event = operator.plan_fencing(end.next(), true).await;
    assert!(matches!(was_event, Err(MarkError::WasEvent(_))), "{was_event:?}");
    overwrite(scene, of_event, &there).await;
    let last = former.next().await;
    former.check(last).await;
}

async fn stored(scene: &Scene<'_>, row: AppRow) -> Bytes {
    let (storage, soon) = (scene.storage(), scene.fixture.shop_db.soon());
    storage.get_linearizable(&row.key(), soon).await.unwrap().unwrap()
}

async fn overwrite(scene: &Scene<'_>, row: AppRow, new: &Bytes) {
    let (storage, soon) = (scene.storage(), scene.fixture.shop_db.soon());
    let there = stored(scene, row).await;
    let swap = storage.compare_and_swap(row.key(), there, new.clone(), None, soon).await;
    assert!(swap.unwrap().is_applied());
}

/// Nothing is written where no write lands late: each entry would make logs longer for nothing.
async fn nothing_is_late(fixture: &CommandsFixture) {
    let capabilities = fixture.shop_db.app.storage.capabilities();
    if !capabilities.late_write.is_zero() {
        return;
    }
    for (setup, partition) in write_setups(fixture).into_iter().zip(1..) {
        let scene = Scene::new(fixture, partition, setup).await;
        let node = scene.next().await;
        let end = node.log.tail().next;
        let nowhere = scene.other + u64::from(PARTITIONS);
        let rejected = scene.run(&node, scene.command("nowhere", nowhere, article("x"))).await;
        assert!(matches!(rejected, Err(Refused::Rejected(_))), "{rejected:?}");
        assert_eq!(shown(&node, end).await, []);
        assert_eq!(node.stop().await, PartitionEnd::Stopped);
        scene.check(None).await;
    }
}
