//! Two leaders. The first one stands still at any of its calls, and goes on when the second one has
//! taken over. The first one still believes that it leads.

use std::{pin::pin, sync::Arc};

use eventlog::TrustLevel;
use processor::{Command, IdempotencyKey, PartitionEnd, Refused, Status};
use shop::{
    NarrowStorage, ShopNode, ShopNodeSettings, StallPoint, StallingStorage, TestFence, article, cud,
};
use tck::trial::{Trial, trials};

use crate::{
    fixture::{CommandsFixture, PARTITION, WS, named},
    scene::{Scene, WriteSetup, play, sample, write_setups},
};

pub(crate) const TRIALS: &[Trial<CommandsFixture>] = trials!(two_leaders:
    the_second_leader_writes_before_a_command_of_the_first_goes_on
        = |fixture| everywhere(fixture, StalledWork::Command, FirstWriter::SecondFirst, None),
    a_command_of_the_first_leader_goes_on_before_the_second_writes
        = |fixture| everywhere(fixture, StalledWork::Command, FirstWriter::FirstFirst, None),
    // Leader A stood still during its recovery. Leader B wrote events, and stored their offset.
    // Then leader A read the stored offset and took the epoch of the last event of leader B. Leader
    // A did not see that this epoch is later than its own. The next command of leader A was
    // acknowledged after those events. No later leader could read the log, because the epochs fell
    // there.
    the_second_leader_writes_before_the_recovery_of_the_first_goes_on
        = |fixture| everywhere(fixture, StalledWork::Recovery, FirstWriter::SecondFirst, None),
    the_recovery_of_the_first_leader_goes_on_before_the_second_writes
        = |fixture| everywhere(fixture, StalledWork::Recovery, FirstWriter::FirstFirst, None),
    // The first leader stood still before its insert. The second one, of level 2, put its events.
    // The insert landed above them.
    the_level_becomes_2_and_the_second_leader_writes_first
        = |fixture| everywhere(fixture, StalledWork::Command, FirstWriter::SecondFirst, Some(Two)),
    the_level_becomes_2_and_the_first_leader_goes_on_first
        = |fixture| everywhere(fixture, StalledWork::Command, FirstWriter::FirstFirst, Some(Two)),
    the_level_becomes_2_and_the_recovery_of_the_first_leader_goes_on
        = |fixture| everywhere(fixture, StalledWork::Recovery, FirstWriter::FirstFirst, Some(Two)),
    at_level_2_no_leader_acknowledges_a_lost_event_once_it_knows_better = at_level_2,
);

use TrustLevel::Two;

/// The work of the first leader when it stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StalledWork {
    Command,
    Recovery,
}

/// The leader that writes first after the second one has taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstWriter {
    SecondFirst,
    FirstFirst,
}

/// With `then`, the level changes to this one before the second leader leads.
async fn everywhere(
    fixture: &CommandsFixture,
    work: StalledWork,
    order: FirstWriter,
    then: Option<TrustLevel>,
) {
    let mut cases = Vec::new();
    let setups = write_setups(fixture).into_iter().filter(|setup| then != Some(setup.level));
    for (setup, partition) in setups.zip(0..) {
        let calls = undisturbed(fixture, partition, setup, work).await;
        assert!(calls > 2, "{calls} calls cannot be all");
        let at = (1..=calls).flat_map(|call| [StallPoint::Before(call), StallPoint::After(call)]);
        cases.extend(at.map(|at| (setup, at)));
    }
    play(sample(fixture, cases), 100, async |partition, (setup, at)| {
        let scene = Scene::new(fixture, partition, setup).await;
        let level = then.unwrap_or(setup.level);
        meet(scene, work, order, at, level).await;
    })
    .await;
}

async fn first(
    scene: &Scene<'_>,
    work: StalledWork,
    at: StallPoint,
) -> (ShopNode, StallingStorage) {
    if work == StalledWork::Recovery {
        scene.leave_a_tail().await;
    }
    let stall = StallingStorage::new(scene.storage());
    if work == StalledWork::Recovery {
        stall.arm(at);
    }
    let settings = scene.settings(Arc::new(stall.clone()));
    let node = scene.fixture.shop_db.node(scene.partition, settings);
    if work == StalledWork::Command {
        node.ready().await;
        stall.arm(at);
    }
    (node, stall)
}

async fn undisturbed(
    fixture: &CommandsFixture,
    partition: u16,
    setup: WriteSetup,
    work: StalledWork,
) -> usize {
    let scene = Scene::new(fixture, partition, setup).await;
    let (node, stall) = first(&scene, work, StallPoint::Nowhere).await;
    match work {
        StalledWork::Command => drop(scene.run(&node, scene.repeatable()).await.unwrap()),
        StalledWork::Recovery => node.ready().await,
    }
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    scene.check(None).await;
    stall.calls()
}

/// `level` is the level of the leaders after the first one.
async fn meet(
    scene: Scene<'_>,
    work: StalledWork,
    order: FirstWriter,
    at: StallPoint,
    level: TrustLevel,
) {
    let setup = scene.setup;
    let (first, stall) = first(&scene, work, at).await;
    // This future ends when the first leader has gone on.
    let sent = async {
        match work {
            StalledWork::Command => drop(scene.run(&first, scene.repeatable()).await),
            StalledWork::Recovery => drop(first.until(has_recovered).await),
        }
    };
    let mut sent = pin!(sent);
    let is_over = tokio::select! {
        biased;
        () = stall.until_still() => false,
        () = &mut sent => true,
    };
    // Numbers are stored after a command is answered, so the first leader may stand still only
    // later.
    stall.until_still().await;

    let second = scene.next_at(level).await;
    // In another workspace the second leader meets no other row of the first one.
    let of_second = |request| match level == setup.level {
        true => scene.changes(request),
        false => scene.command(request, scene.other, article(request)),
    };
    if order == FirstWriter::SecondFirst {
        let done = scene.until_done(&second, || of_second("second")).await;
        // The first leader then begins after this event.
        scene.until_stored(done.plog).await;
    }
    stall.go_on();
    if !is_over {
        sent.await;
    }
    let again = scene.run(&first, scene.changes("first again")).await;
    let is_detected = setup.level != Two && order == FirstWriter::SecondFirst;
    assert!(!is_detected || again.is_err(), "the second was there before: {again:?}");
    let more = if order == FirstWriter::SecondFirst { "second again" } else { "second" };
    scene.until_done(&second, || of_second(more)).await;
    first.kill();
    assert_eq!(second.stop().await, PartitionEnd::Stopped);

    let third = scene.next_at(level).await;
    if setup.level != Two {
        let was = scene.answer("repeatable");
        let again = scene.run(&third, scene.repeatable()).await.unwrap();
        let was_done = work == StalledWork::Recovery || matches!(was, Some(Ok(_)));
        assert!(!was_done || again.is_repeated, "{was:?} {again:?}");
    }
    scene.until_done(&third, || scene.changes("third")).await;
    assert_eq!(third.stop().await, PartitionEnd::Stopped);
    let since = (setup.level == Two).then(|| second.log.fence().epoch());
    if since.is_some() {
        // Only the second leader has given promises.
        scene.forget(["repeatable", "first again"]);
    }
    scene.check(since).await;
}

fn has_recovered(status: &Status) -> bool {
    matches!(status, Status::Ready | Status::LeadershipLost(_) | Status::Failed(_))
}

/// The second leader leads, and has written in the place where the first leader writes. So the
/// event of the first leader is not in the log. The first leader must not acknowledge the event
/// once it knows that it no longer leads. The second leader must not acknowledge it either, when a
/// client sends the command of the first leader again.
async fn at_level_2(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let settings = |storage| ShopNodeSettings { storage, ..ShopNodeSettings::at(Two) };
    let (begins, mut ledger) = fixture.begin(PARTITION, WS, settings(None)).await;
    assert_eq!(begins.stop().await, PartitionEnd::Stopped);
    let stall =
        StallingStorage::new(NarrowStorage::of(Arc::clone(&shop_db.app.storage), 100, true));
    let (fence, storage) = (TestFence::of(1 << 10), Arc::new(stall.clone()));
    let first = shop_db.node_of(PARTITION, Arc::clone(&fence), settings(Some(storage)));
    first.ready().await;
    // The first leader has inserted its first event, and puts the later ones.
    let begun = named("first", cud(WS, article("first"), shop_db.soon()));
    fixture.run(&first, &mut ledger, begun).await.unwrap();
    let second = shop_db.node_of(PARTITION, TestFence::of(1 << 11), settings(None));
    second.ready().await;
    let written = named("of the second", cud(WS, article("a"), shop_db.soon()));
    let written = fixture.run(&second, &mut ledger, written).await.unwrap();

    let repeatable = || {
        let command = named("repeatable", cud(WS, article("b"), shop_db.soon()));
        Command { idempotency_key: Some(IdempotencyKey::new("joe", b"key", b"body")), ..command }
    };
    let of_first = first.commands.run(repeatable()).await.unwrap();
    assert_eq!(of_first.plog, written.plog, "it looks like a success");
    let done = fixture.run(&second, &mut ledger, repeatable()).await.unwrap();
    assert!(!done.is_repeated, "its event is not in the log");
    let again = second.commands.run(repeatable()).await.unwrap();
    assert_eq!((again.is_repeated, again.version()), (true, done.version()));

    stall.arm(StallPoint::AfterWrite(1));
    let sent = first.commands.run(named("of the first", cud(WS, article("c"), shop_db.soon())));
    let loses = async {
        stall.until_still().await;
        fence.lose();
        stall.go_on();
    };
    let (refused, ()) = futures::future::join(sent, loses).await;
    assert!(matches!(refused, Err(Refused::Unknown(_))), "{refused:?}");
    first.kill();
    assert_eq!(second.stop().await, PartitionEnd::Stopped);
}
