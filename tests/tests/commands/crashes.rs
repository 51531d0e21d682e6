//! A node that dies at any of its calls to the storage: before the call is done, or before its
//! answer comes.

use std::sync::Arc;

use processor::PartitionEnd;
use shop::{StallPoint, StallingStorage, bill, update};
use trialkit::{Trial, trials};

use crate::{
    fixture::CommandsFixture,
    scene::{Scene, WriteSetup, play, sample, write_setups},
};

pub(crate) const TRIALS: &[Trial<CommandsFixture>] = trials!(crashes:
    a_crash_at_any_call_of_a_lone_command_loses_nothing
        = |fixture| everywhere(fixture, CrashedWork::Lone),
    a_crash_at_any_call_of_a_group_loses_nothing
        = |fixture| everywhere(fixture, CrashedWork::Group),
    a_crash_at_any_call_of_a_recovery_loses_nothing
        = |fixture| everywhere(fixture, CrashedWork::Recovery),
);

/// The work of a node when it dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CrashedWork {
    Lone,
    Group,
    Recovery,
}

async fn everywhere(fixture: &CommandsFixture, work: CrashedWork) {
    let mut cases = Vec::new();
    for (setup, partition) in write_setups(fixture).into_iter().zip(0..) {
        let calls = crash(fixture, partition, setup, work, StallPoint::Nowhere).await;
        assert!(calls > 2, "{calls} calls cannot be all");
        let at = (1..=calls).flat_map(|call| [StallPoint::Before(call), StallPoint::After(call)]);
        cases.extend(at.map(|at| (setup, at)));
    }
    play(sample(fixture, cases), 100, async |partition, (setup, at)| {
        crash(fixture, partition, setup, work, at).await;
    })
    .await;
}

/// Plays one case, and returns the number of calls to the storage.
async fn crash(
    fixture: &CommandsFixture,
    partition: u16,
    setup: WriteSetup,
    work: CrashedWork,
    at: StallPoint,
) -> usize {
    let scene = Scene::new(fixture, partition, setup).await;
    if work == CrashedWork::Recovery {
        scene.leave_a_tail().await;
    }
    let dies = StallingStorage::new(scene.storage());
    let hold = StallingStorage::new(Arc::new(dies.clone()));
    if work == CrashedWork::Recovery {
        dies.arm(at);
    }
    let node = fixture.shop_db.node(partition, scene.settings(Arc::new(hold.clone())));
    let acts = async {
        node.ready().await;
        match work {
            CrashedWork::Lone => {
                dies.arm(at);
                scene.run(&node, scene.repeatable()).await.unwrap();
            }
            CrashedWork::Group => {
                dies.arm(at);
                scene.run_group(&node, &hold, scene.group()).await;
            }
            CrashedWork::Recovery => {}
        }
        assert_eq!(node.stop().await, PartitionEnd::Stopped);
    };
    tokio::select! {
        () = acts => {}
        () = dies.until_still() => {}
    }
    node.kill();
    let calls = dies.calls();
    assert!(at == StallPoint::Nowhere || dies.is_still(), "it did not get there");
    recover(&scene).await;
    calls
}

async fn recover(scene: &Scene<'_>) {
    let was_done = scene.answer("repeatable");
    let node = scene.next().await;
    let again = scene.run(&node, scene.repeatable()).await.unwrap();
    if let Some(first) = was_done {
        let first = first.unwrap();
        assert!(again.is_repeated);
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
