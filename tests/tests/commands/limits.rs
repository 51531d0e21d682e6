//! Commands that are too large, too many or too late, or that reach a limit exactly.

use std::{sync::Arc, time::Duration};

use eventlog::{AppRow, Offset, RecordId, TrustLevel, layout};
use futures::{
    TryStreamExt,
    future::{join, join_all},
};
use istorage::{Consistency, Range};
use processor::{Busy, Command, Done, FullQueue, PartitionEnd, Refused, RejectionKind, Status};
use shop::{
    AnswerLedger, NarrowStorage, ShopNode, ShopNodeSettings, StallPoint, StallingStorage,
    TestFence, WriteSteps, article, check, create_workspace, cud, new_row, qname, text, update,
};
use tck::trial::{Trial, trials};

use crate::{
    fixture::{CommandsFixture, PARTITION, WS, named},
    scene::{LEVELS, Scene, WriteSetup, play},
};

pub(crate) const TRIALS: &[Trial<CommandsFixture>] = trials!(limits:
    a_group_crosses_into_the_next_storage_partition = crossing,
    a_group_is_larger_than_one_write = large,
    a_row_of_the_largest_size_is_written_and_a_larger_one_is_refused = large_rows,
    a_full_queue_takes_nothing = full_queue,
    a_command_that_waits_too_long_is_not_done = too_late,
    a_handler_that_panics_does_not_harm_other_commands = panics,
    a_task_that_has_used_up_its_budget_can_read = used_up,
    time_never_falls_when_clocks_differ = clocks,
);

const ZERO: WriteSetup = WriteSetup { level: TrustLevel::Zero, narrow: None };

/// The offset where the second storage partition begins.
const BOUNDARY: u64 = layout::NEIGHBOURS;

/// The number of commands that are sent before the first of them is answered.
const WAVE: usize = 900;

/// A leader, and the stall that can hold it.
struct HeldLeader {
    node: ShopNode,
    hold: StallingStorage,
}

impl HeldLeader {
    async fn new(scene: &Scene<'_>, change: impl FnOnce(&mut ShopNodeSettings)) -> HeldLeader {
        let hold = StallingStorage::new(scene.storage());
        let mut settings = scene.settings(Arc::new(hold.clone()));
        change(&mut settings);
        let node = scene.fixture.shop_db.node(scene.partition, settings);
        node.ready().await;
        HeldLeader { node, hold }
    }
}

async fn crossing(fixture: &CommandsFixture) {
    // A group is written atomically, if the storage can, and in steps.
    let write_setups =
        if fixture.is_embedded { vec![None, Some(WriteSteps::Of(100))] } else { vec![None] };
    let cases =
        write_setups.into_iter().flat_map(|narrow| [false, true].map(|dies| (narrow, dies)));
    play(cases.collect(), 100, async |partition, (narrow, dies)| {
        let scene = Scene::new(fixture, partition, WriteSetup { narrow, ..ZERO }).await;
        fill(&scene).await;
        if dies {
            die_at_the_boundary(&scene).await;
        }
        let HeldLeader { node, hold } = HeldLeader::new(&scene, |_| {}).await;
        assert_eq!(node.log.tail().next >= Offset(BOUNDARY), dies);
        scene.run_group(&node, &hold, many(&scene, "second")).await;
        let last = scene.answer("second 29").unwrap().unwrap();
        assert!(last.plog > Offset(BOUNDARY));
        assert_eq!(node.stop().await, PartitionEnd::Stopped);
        let next = scene.next().await;
        scene.run(&next, scene.changes("last")).await.unwrap();
        assert_eq!(next.stop().await, PartitionEnd::Stopped);
        scene.check(None).await;
    })
    .await;
}

/// Writes events until only a few more fit into the storage partition, in both logs.
async fn fill(scene: &Scene<'_>) {
    let node = scene.next().await;
    let notes: Vec<u64> = (4..BOUNDARY - 6).collect();
    for wave in notes.chunks(WAVE) {
        let sent = wave.iter().map(async |plog| {
            let command = scene.command(&format!("note {plog}"), scene.ws, Vec::new());
            let command = Command { name: qname("shop.Note"), ..command };
            assert_eq!(scene.run(&node, command).await.unwrap().plog, Offset(*plog));
        });
        join_all(sent).await;
    }
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}

/// Lets a leader die at the boundary. The events before the boundary are in the log and not
/// applied. The events after the boundary are not in the log.
async fn die_at_the_boundary(scene: &Scene<'_>) {
    let dies = StallingStorage::new(NarrowStorage::of(
        Arc::clone(&scene.fixture.shop_db.app.storage),
        100,
        true,
    ));
    let hold = StallingStorage::new(Arc::new(dies.clone()));
    let settings = scene.settings(Arc::new(hold.clone()));
    let node = scene.fixture.shop_db.node(scene.partition, settings);
    node.ready().await;
    dies.arm(StallPoint::AfterWrite(1));
    tokio::select! {
        () = scene.run_group(&node, &hold, many(scene, "first")) => panic!("a command was answered"),
        () = dies.until_still() => {}
    }
    node.kill();
}

/// A group with more rows than some storages write at once.
fn many(scene: &Scene<'_>, request: &str) -> Vec<Command> {
    let changes = (0..30).map(|n| scene.changes(&format!("{request} {n}")));
    [scene.repeatable()].into_iter().chain(changes).collect()
}

async fn large(fixture: &CommandsFixture) {
    let narrow = [
        None,
        Some(WriteSteps::Of(3)),
        Some(WriteSteps::OneByOne(3)),
        Some(WriteSteps::BeyondAtomic(3)),
    ];
    let write_setups =
        LEVELS.into_iter().flat_map(|level| narrow.map(|narrow| WriteSetup { level, narrow }));
    play(write_setups.collect(), 100, async |partition, setup| {
        let scene = Scene::new(fixture, partition, setup).await;
        let HeldLeader { node, hold } = HeldLeader::new(&scene, |_| {}).await;
        scene.run_group(&node, &hold, many(&scene, "many")).await;
        let answers: Vec<Done> =
            (0..30).map(|n| scene.answer(&format!("many {n}")).unwrap().unwrap()).collect();
        assert!(answers.windows(2).all(|two| two[0].plog.next() == two[1].plog));
        assert_eq!(node.stop().await, PartitionEnd::Stopped);
        scene.check(None).await;
    })
    .await;
}

async fn large_rows(fixture: &CommandsFixture) {
    let scene = Scene::new(fixture, 100, ZERO).await;
    let HeldLeader { node, hold } = HeldLeader::new(&scene, |_| {}).await;
    let largest = node.log.largest_row();
    let of_size = |request: &str, id: RecordId, size: usize| {
        scene.command(request, scene.ws, vec![update(id, None, &"x".repeat(size))])
    };
    // The other parts of the row need room too.
    let nearly = largest - 1_000;
    let group = vec![
        scene.repeatable(),
        of_size("too large", scene.article, largest),
        scene.changes("after it"),
    ];
    scene.run_group(&node, &hold, group).await;
    let refused = scene.answer("too large").unwrap().unwrap_err();
    let is_right =
        matches!(&refused, Refused::Rejected(why) if why.kind == RejectionKind::TooLarge);
    assert!(is_right, "{refused:?}");
    let done = ["repeatable", "after it"].map(|request| scene.answer(request).unwrap().unwrap());
    assert_eq!(done[0].plog.next(), done[1].plog, "it gave its offset back");
    // One large row replaces another one of the same size.
    for request in ["large", "large again"] {
        scene.run(&node, of_size(request, scene.article, nearly)).await.unwrap();
    }
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    let next = scene.next().await;
    scene.run(&next, scene.changes("last")).await.unwrap();
    assert_eq!(next.stop().await, PartitionEnd::Stopped);
    scene.check(None).await;
}

async fn full_queue(fixture: &CommandsFixture) {
    let scene = Scene::new(fixture, 100, ZERO).await;
    let HeldLeader { node, hold } = HeldLeader::new(&scene, |settings| {
        settings.partition.queue = 2;
        settings.partition.queue_wait = Duration::ZERO;
    })
    .await;
    let sent = (0..5).map(|n| scene.changes(&format!("{n}")));
    // One command is running, two wait, and the queue has no room for the others.
    let mut commands = vec![scene.repeatable()];
    commands.extend(sent);
    hold.arm(StallPoint::Before(1));
    let first = scene.run(&node, scene.repeatable());
    let others = async {
        hold.until_still().await;
        let sent = join_all(commands.into_iter().skip(1).map(|command| scene.run(&node, command)));
        let go_on = async {
            assert_eq!(node.commands.waiting(), 2);
            assert_eq!(node.commands.status(), Status::Full(FullQueue::Commands));
            hold.go_on();
        };
        join(sent, go_on).await.0
    };
    let (first, others) = join(first, others).await;
    assert!(first.is_ok() && others[..2].iter().all(Result::is_ok), "{first:?} {others:?}");
    for refused in &others[2..] {
        let full = FullQueue::Commands;
        let is_full =
            matches!(refused, Err(Refused::Busy(Busy::QueueFull { full: it, .. })) if *it == full);
        assert!(is_full, "{refused:?}");
    }
    // The queue has room again.
    scene.run(&node, scene.changes("last")).await.unwrap();
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    scene.check(None).await;
}

async fn too_late(fixture: &CommandsFixture) {
    let scene = Scene::new(fixture, 100, ZERO).await;
    let HeldLeader { node, hold } = HeldLeader::new(&scene, |_| {}).await;
    let within = |millis| fixture.shop_db.clock.now() + Duration::from_millis(millis);
    // The command has read its rows, and its group is being written. A busy server needs longer for
    // the rows than 100 ms.
    hold.arm(StallPoint::Before(2));
    let begun = scene.run(&node, Command { deadline: within(3_000), ..scene.repeatable() });
    let waiting = async {
        hold.until_still().await;
        scene.run(&node, Command { deadline: within(100), ..scene.changes("waits") }).await
    };
    let (begun, waiting) = join(begun, waiting).await;
    assert!(matches!(begun, Err(Refused::Unknown(_))), "{begun:?}");
    assert_eq!(waiting, Err(Refused::Busy(Busy::TimedOut)));
    hold.go_on();
    // This command comes after the two others. At the end the ledger proves that the waiting one
    // was not done.
    scene.run(&node, scene.changes("last")).await.unwrap();
    let again = scene.run(&node, scene.repeatable()).await.unwrap();
    assert_eq!(scene.run(&node, scene.repeatable()).await.unwrap().answer, again.answer);
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    scene.check(None).await;
}

async fn panics(fixture: &CommandsFixture) {
    let scene = Scene::new(fixture, 100, ZERO).await;
    let HeldLeader { node, hold } = HeldLeader::new(&scene, |_| {}).await;
    let panics = |request: &str| {
        let command = scene.command(request, scene.ws, article("never"));
        Command { name: qname("shop.Fail"), ..command }
    };
    let group = vec![scene.repeatable(), panics("panics"), scene.changes("after it")];
    scene.run_group(&node, &hold, group).await;
    scene.run(&node, panics("alone")).await.unwrap_err();
    for request in ["panics", "alone"] {
        let refused = scene.answer(request).unwrap().unwrap_err();
        let is_right =
            matches!(&refused, Refused::Rejected(why) if why.kind == RejectionKind::Internal);
        assert!(is_right, "{refused:?}");
    }
    let done = ["repeatable", "after it"].map(|request| scene.answer(request).unwrap().unwrap());
    assert_eq!(done[0].plog.next(), done[1].plog, "it gave its offset back");
    let ids = done.map(|done| done.answer.ids[0].1.0);
    assert_eq!(ids[0] + 3, ids[1], "and its ids");
    scene.run(&node, scene.changes("last")).await.unwrap();
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    scene.check(None).await;
}

/// A task that awaited a stream of a guarded storage spun for ever, and blocked its thread. The
/// task had used up its budget of tokio when the stream was woken. Besides, the task was polled by
/// `block_on` of a runtime with several threads, and not by a worker. There tokio defers a task by
/// waking it at once. The timeout of the stream took this wake for a sign of life, and polled the
/// stream again without an end. The bug occurred on redb, because its answers come through channels
/// of tokio.
async fn used_up(fixture: &CommandsFixture) {
    let scene = Scene::new(fixture, 100, ZERO).await;
    let key = AppRow::Plog(scene.partition, Offset::FIRST).key();
    let timeout = Duration::from_secs(10);
    let rows = scene.storage().read(key.pkey, Range::all(), Consistency::Plain, timeout);
    let (done, is_done) = tokio::sync::oneshot::channel();
    let runtime = tokio::runtime::Handle::current();
    let read = move || {
        let rows = rows.try_collect::<Vec<_>>();
        done.send(runtime.block_on(join(use_up(100), rows)).1).unwrap();
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "the thread may not end, so the trial does not wait for it"
    )]
    drop(std::thread::spawn(read));
    let clock = &fixture.shop_db.clock;
    let read = clock.timeout_at(clock.now() + timeout, is_done).await;
    assert_eq!(read.expect("it ends").unwrap().unwrap().len(), 3);
}

/// Uses up the whole budget of the task, for a number of turns.
async fn use_up(turns: usize) {
    for _ in 0..turns {
        while tokio::task::coop::has_budget_remaining() {
            tokio::task::consume_budget().await;
        }
        tokio::task::yield_now().await;
    }
}

async fn clocks(fixture: &CommandsFixture) {
    const AHEAD_MS: i64 = 5_000;
    let (shop_db, ahead) = (&fixture.shop_db, fixture.with_clock_ahead(AHEAD_MS).await);
    for (partition, level) in (PARTITION..).zip(LEVELS) {
        let ws = WS + u64::from(partition - PARTITION);
        let mut ledger = AnswerLedger::default();
        let (mut article, mut second_at) = (None, shop_db.clock.wall());
        for epoch in 1..=4 {
            let here = if epoch % 2 == 1 { &ahead } else { shop_db };
            let node = here.node_of(partition, TestFence::of(epoch), ShopNodeSettings::at(level));
            node.ready().await;
            let mut rows = vec![new_row(1, "shop.Article", [("name", text("new"))])];
            rows.extend(article.map(|id| update(id, None, "newer")));
            if epoch == 1 {
                let create = named("create", create_workspace(ws, here.soon()));
                fixture.run(&node, &mut ledger, create).await.unwrap();
            }
            let command = named(&format!("{epoch}"), cud(ws, rows, here.soon()));
            let done = fixture.run(&node, &mut ledger, command).await.unwrap();
            article = Some(done.answer.ids[0].1);
            second_at = if epoch == 2 { shop_db.clock.wall() } else { second_at };
            assert_eq!(node.stop().await, PartitionEnd::Stopped);
        }
        let state = check(shop_db, partition, &ledger).await;
        let times: Vec<_> = state.events.iter().map(|event| event.time).collect();
        assert!(times.is_sorted(), "{times:?}");
        assert!(times[2] > second_at, "the clock of the second was behind the first's events");
    }
}
