//! A node that dies at any of its calls to the storage: before the call is done, or before its
//! answer comes.

use std::sync::Arc;

use processor::Ended;
use vvm_tests::commands::{StallPoint, StallingStorage, bill, update};

use crate::{
    scene::{How, Scene, play, sample, ways},
    stage::{Stage, TrialFn},
};

pub(crate) const TRIALS: &[(&str, TrialFn)] = &[
    ("crash::at_every_call_of_a_lone_command", |stage| Box::pin(everywhere(stage, Act::Lone))),
    ("crash::at_every_call_of_a_group", |stage| Box::pin(everywhere(stage, Act::Group))),
    ("crash::at_every_call_of_a_recovery", |stage| Box::pin(everywhere(stage, Act::Recovery))),
];

/// The work of a node when it dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Lone,
    Group,
    Recovery,
}

async fn everywhere(stage: &Stage, act: Act) {
    let mut cases = Vec::new();
    for (how, partition) in ways(stage).into_iter().zip(0..) {
        let calls = crash(stage, partition, how, act, StallPoint::Nowhere).await;
        assert!(calls > 2, "{calls} calls cannot be all");
        let at = (1..=calls).flat_map(|call| [StallPoint::Before(call), StallPoint::After(call)]);
        cases.extend(at.map(|at| (how, at)));
    }
    play(sample(stage, cases), 100, async |partition, (how, at)| {
        crash(stage, partition, how, act, at).await;
    })
    .await;
}

/// Plays one case, and returns the number of calls to the storage.
async fn crash(stage: &Stage, partition: u16, how: How, act: Act, at: StallPoint) -> usize {
    let scene = Scene::new(stage, partition, how).await;
    if act == Act::Recovery {
        scene.leave_a_tail().await;
    }
    let dies = StallingStorage::new(scene.storage());
    let hold = StallingStorage::new(Arc::new(dies.clone()));
    if act == Act::Recovery {
        dies.arm(at);
    }
    let node = stage.shop_db.node(partition, scene.settings(Arc::new(hold.clone())));
    let acts = async {
        node.ready().await;
        match act {
            Act::Lone => {
                dies.arm(at);
                scene.run(&node, scene.repeatable()).await.unwrap();
            }
            Act::Group => {
                dies.arm(at);
                scene.run_group(&node, &hold, scene.group()).await;
            }
            Act::Recovery => {}
        }
        assert_eq!(node.stop().await, Ended::Stopped);
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
    assert_eq!(node.stop().await, Ended::Stopped);
    scene.check(None).await;
}
