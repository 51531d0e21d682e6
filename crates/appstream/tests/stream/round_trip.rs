//! An imported application has the same logs, records and numbers, and goes on.

use appstream::eventlog::{TrustLevel, WsId};
use appstream::istorage::Consistency;
use appstream::sysvvm::{
    AppName,
    ownership::{OwnerEpoch, PartitionId},
};
use docnumbers::Reset;
use processor::{Command, IdempotencyKey, PartitionEnd};
use shop::{article, cud};

use crate::scene::{FAR, Scene, WORKSPACES, empty, import_into, name, sorted_lines, system};

const LEVELS: [TrustLevel; 3] = [TrustLevel::Zero, TrustLevel::One, TrustLevel::Two];

#[tokio::test]
async fn a_node_makes_the_same_rows_at_every_level() {
    for level in LEVELS {
        for in_view in [false, true] {
            let source = Scene::full(level, in_view).await;
            let stream = source.export().await;
            let kinds =
                ["header", "event", "fencing", "record", "number", "series", "counter", "range"];
            for kind in kinds {
                let line = format!("\n{{\"{kind}\"");
                let text = format!("\n{}", String::from_utf8_lossy(&stream));
                assert!(text.contains(&line), "the stream has no {kind}");
            }
            let target = empty();
            let report = import_into(&target, &stream).await.unwrap();
            assert_eq!(report.events as usize, count(&stream, "{\"event\""));
            let target = Scene::open(target, level, in_view).await;
            recover(&target).await;
            assert_eq!(target.app_rows().await, source.app_rows().await, "{level:?} {in_view}");
            for ws in WORKSPACES {
                assert_eq!(target.stored_numbers(ws).await, source.stored_numbers(ws).await);
            }
            let again = target.export().await;
            assert_eq!(sorted_lines(&again), sorted_lines(&stream));
        }
    }
}

fn count(stream: &[u8], start: &str) -> usize {
    std::str::from_utf8(stream).unwrap().lines().filter(|line| line.starts_with(start)).count()
}

/// The epochs that the next owners of partitions 1 and 2 get.
async fn next_epochs(scene: &Scene) -> [u64; 2] {
    let owners = scene.db.system.owners().read(Consistency::Linearizable, FAR).await.unwrap();
    let app = scene.db.app.entry.number.get();
    [1, 2].map(|partition| {
        let row = owners.rows.get(&PartitionId { app, partition }).copied().unwrap_or_default();
        assert_eq!(row.owner, None);
        let OwnerEpoch(epoch) = row.epoch;
        u64::from(epoch) + 1
    })
}

/// Lets nodes replay the logs, and stops them.
async fn recover(scene: &Scene) {
    for (partition, epoch) in [1, 2].into_iter().zip(next_epochs(scene).await) {
        let node = scene.node(partition, epoch).await;
        assert_eq!(node.stop().await, PartitionEnd::Stopped);
    }
}

/// The last event of partition 1 is of epoch 2, and its marker of epoch 3.
#[tokio::test]
async fn epochs_begin_above_those_of_the_log() {
    let source = Scene::full(TrustLevel::Zero, false).await;
    let target = empty();
    import_into(&target, &source.export().await).await.unwrap();
    let target = Scene::open(target, TrustLevel::Zero, false).await;
    assert_eq!(next_epochs(&target).await, [4, 2]);
}

/// The next command gets the numbers that follow, and a repeated command gets its answer.
#[tokio::test]
async fn numbers_go_on_where_they_stopped() {
    for level in LEVELS {
        let source = Scene::full(level, false).await;
        let target = empty();
        import_into(&target, &source.export().await).await.unwrap();
        let target = Scene::open(target, level, false).await;
        for scene in [&source, &target] {
            let again = cud(2, article("with a key"), FAR);
            let node = scene.node(2, 7).await;
            let key = IdempotencyKey::new("", b"key", b"body");
            let again = Command { idempotency_key: Some(key), ..again };
            assert!(scene.run(&node, again).await.is_repeated);
            node.stop().await;
        }
        let mut seen = Vec::new();
        for scene in [source, target] {
            let node = scene.node(1, 7).await;
            let done = scene.run(&node, cud(1, article("next"), FAR)).await;
            let command = |name: &str| Command::new(WsId(1), name.parse().unwrap(), FAR);
            let note = scene.run(&node, command("shop.Note")).await;
            let draw = command("shop.Draw").with_params("invoice");
            let invoice = scene.run(&node, draw).await;
            let mut drawn = Vec::new();
            for (id, reset) in [("ticket", Reset::Never), ("order", Reset::Year)] {
                let series = scene.fast(id, reset, "next").await;
                let ws = WsId(1);
                drawn.push(series.next(ws, FAR).await.unwrap().text);
                series.close(FAR).await;
            }
            seen.push((
                done.plog,
                done.wlog,
                done.answer.ids.clone(),
                note.answer.result,
                invoice.answer.result,
                drawn,
            ));
            assert_eq!(node.stop().await, PartitionEnd::Stopped);
        }
        assert_eq!(seen[0], seen[1]);
    }
}

/// A second import gets another number and keyspace, and no row of the first one.
#[tokio::test]
async fn an_application_is_imported_under_another_name() {
    let source = Scene::full(TrustLevel::Zero, false).await;
    let stream = source.export().await;
    let checked = appstream::check_stream(&stream[..]).unwrap();
    let system = system(&source.driver).await;
    let copy = AppName::new("acme", "copy").unwrap();
    let clock = source.db.clock.clone();
    appstream::import(&system, &copy, &stream[..], &checked, clock, FAR).await.unwrap();
    let opened = system.open_app(&copy, FAR).await.unwrap();
    assert_ne!(opened.entry.number, system.open_app(&name(), FAR).await.unwrap().entry.number);
    assert_eq!(sorted_lines(&source.export().await), sorted_lines(&stream));
}
