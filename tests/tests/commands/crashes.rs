//! A node that dies at any of its calls to the storage: before the call is done, or before its
//! answer comes.

mod lossy_storage;

use std::sync::Arc;

use self::CrashedWork::{Group, Lone, Recovery};
use lossy_storage::{
    CrashDefect::{self, LastEventLost, LastWriteLate, RowsAfterOffset},
    LossyStorage,
};
use processor::PartitionEnd;
use shop::{StallPoint, StallingStorage, bill, update};
use tck::trial::{Trial, finding_of, trials};

use crate::{
    fixture::CommandsFixture,
    scene::{Scene, WriteSetup, play, sample, write_setups},
};

pub(crate) const TRIALS: &[Trial<CommandsFixture>] = trials!(crashes:
    a_crash_at_any_call_of_a_lone_command_loses_nothing
        = |fixture| everywhere(fixture, Lone),
    a_crash_at_any_call_of_a_group_loses_nothing
        = |fixture| everywhere(fixture, Group),
    a_crash_at_any_call_of_a_recovery_loses_nothing
        = |fixture| everywhere(fixture, Recovery),
);

/// Each defect must be found, by the work and the check that it breaks.
pub(crate) const FOUND: &[Trial<CommandsFixture>] = trials!(found_by_crashes:
    a_write_that_is_done_after_its_answer
        = |fixture| is_found(fixture, Lone, LastWriteLate, "was first answered"),
    an_event_that_is_lost
        = |fixture| is_found(fixture, Lone, LastEventLost, "was not replayed yet"),
    an_event_of_a_group_that_is_lost
        = |fixture| is_found(fixture, Group, LastEventLost, "was not replayed yet"),
    rows_that_are_written_after_the_offset
        = |fixture| is_found(fixture, Group, RowsAfterOffset, "not those of all events"),
    rows_that_a_recovery_writes_after_the_offset
        = |fixture| is_found(fixture, Recovery, RowsAfterOffset, "not those of all events"),
);

/// The work of a node when it dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CrashedWork {
    Lone,
    Group,
    Recovery,
}

/// A node that dies: its work, how it writes, and the call where it dies.
#[derive(Clone, Copy, Debug)]
struct Crash {
    work: CrashedWork,
    setup: WriteSetup,
    at: StallPoint,
    defect: Option<CrashDefect>,
}

/// The crashes at all calls of a work. Uses the partitions below 100.
async fn crashes(fixture: &CommandsFixture, work: CrashedWork) -> Vec<Crash> {
    let mut crashes = Vec::new();
    for (setup, partition) in write_setups(fixture).into_iter().zip(0..) {
        let whole = Crash { work, setup, at: StallPoint::Nowhere, defect: None };
        let calls = play_crash(fixture, partition, whole).await;
        assert!(calls > 2, "{calls} calls cannot be all");
        let at = (1..=calls).flat_map(|call| [StallPoint::Before(call), StallPoint::After(call)]);
        crashes.extend(at.map(|at| Crash { at, ..whole }));
    }
    crashes
}

async fn everywhere(fixture: &CommandsFixture, work: CrashedWork) {
    let crashes = crashes(fixture, work).await;
    play(sample(fixture, crashes), 100, async |partition, crash| {
        play_crash(fixture, partition, crash).await;
    })
    .await;
}

/// Plays the crashes of a work with a defect, until one of them finds the defect.
async fn is_found(
    fixture: &CommandsFixture,
    work: CrashedWork,
    defect: CrashDefect,
    expected: &str,
) {
    for (crash, partition) in crashes(fixture, work).await.into_iter().zip(100..) {
        let crash = Crash { defect: Some(defect), ..crash };
        let played = async { _ = play_crash(fixture, partition, crash).await };
        if let Some(found) = finding_of(played).await {
            assert!(found.contains(expected), "{crash:?}: {found}");
            return;
        }
    }
    panic!("no crash found {defect:?}");
}

/// Plays a crash, and checks that the next leader finds everything that was answered. Returns the
/// number of calls to the storage.
async fn play_crash(fixture: &CommandsFixture, partition: u16, crash: Crash) -> usize {
    let Crash { work, setup, at, defect } = crash;
    let scene = Scene::new(fixture, partition, setup).await;
    if work == Recovery {
        scene.leave_a_tail().await;
    }
    let lossy = defect.map(|defect| LossyStorage::of(scene.storage(), defect));
    let dies = StallingStorage::new(match &lossy {
        Some(lossy) => Arc::clone(lossy) as _,
        None => scene.storage(),
    });
    let hold = StallingStorage::new(Arc::new(dies.clone()));
    if work == Recovery {
        dies.arm(at);
    }
    let node = fixture.shop_db.node(partition, scene.settings(Arc::new(hold.clone())));
    let acts = async {
        node.ready().await;
        match work {
            Lone => {
                dies.arm(at);
                scene.run(&node, scene.repeatable()).await.unwrap();
            }
            Group => {
                dies.arm(at);
                scene.run_group(&node, &hold, scene.group()).await;
            }
            Recovery => {}
        }
        assert_eq!(node.stop().await, PartitionEnd::Stopped);
    };
    // The work first: a client has the answer that was sent before the node stood still. In the
    // other order it had the answer by chance, and a lost event was a finding by chance.
    tokio::select! {
        biased;
        () = acts => {}
        () = dies.until_still() => {}
    }
    node.kill();
    let calls = dies.calls();
    assert!(at == StallPoint::Nowhere || dies.is_still(), "it did not get there");
    if let Some(lossy) = lossy {
        lossy.crash(partition).await;
    }
    recover(&scene).await;
    calls
}

async fn recover(scene: &Scene<'_>) {
    let was_done = scene.answer("repeatable");
    let node = scene.next().await;
    let again = scene.run(&node, scene.repeatable()).await;
    let again = again.expect("the next leader does the command, or repeats its answer");
    if let Some(first) = was_done {
        let first = first.unwrap();
        assert!(again.is_repeated, "an answered command was done again");
        assert_eq!(
            (again.plog, again.wlog, &again.answer),
            (first.plog, first.wlog, &first.answer)
        );
    }
    let mut rows = bill("last");
    rows.push(update(scene.article, None, "last"));
    scene.run(&node, scene.command("last", scene.ws, rows)).await.unwrap();
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    scene.check(None).await;
}
