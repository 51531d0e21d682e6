//! Counter records that the storage has lost.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use eventlog::{AppRow, Offset, WsId};
use isequencer::WsKind;
use istorage::{AppStorageExt, CallKind, Consistency, Outcome};
use processor::{
    Application, Declarations, Refused, Rejection, RejectionKind, RowChange, SeriesPolicy,
    docnumbers::{Definition, Series},
};
use shop::{ShopNode, ShopNodeSettings, create_workspace, new_row, text};
use tck::storage::{Fault, Faulty};

use crate::{
    rules::rejected,
    scene::{COUNTER, PARTITION, Scene, WS, invoice},
};

/// A scene with invoices, which have numbers, and notes, which have none.
async fn scene() -> Scene {
    let schema = "[tables.\"shop.Invoice\"]\nkind = \"WDoc\"\nfields = { name = \"string\" }\n\
                  numbers = { number = \"a\" }\n[tables.\"shop.Note\"]\nkind = \"WDoc\"\n\
                  fields = { name = \"string\" }";
    let app = Declarations::new(schema.parse().unwrap()).unwrap();
    let app = app.with_workspaces("Shop", WsKind(1), []).unwrap();
    let series = Series::new(Definition::new("a", "A{counter:1}")).unwrap();
    let gapless = SeriesPolicy::Gapless { counter: COUNTER };
    Scene::of(Application::new(app.with_series(series, gapless).unwrap())).await
}

fn note(bytes: usize) -> RowChange {
    new_row(1, "shop.Note", [("name", text("x".repeat(bytes)))])
}

/// Removes a row from the storage.
async fn lose(scene: &Scene, row: AppRow) {
    let (storage, soon, key) = (&scene.shop_db.app.storage, scene.shop_db.soon(), row.key());
    let old = storage.get(&key, Consistency::Plain, soon).await.unwrap().unwrap();
    let deleted = storage.compare_and_delete(key, old, soon).await.unwrap();
    assert_eq!(deleted, Outcome::Applied);
}

/// A leader that counts its reads of logs, with a workspace of 40 notes of this many bytes.
async fn counting(scene: &Scene, bytes: usize) -> (ShopNode, Arc<AtomicUsize>) {
    let reads = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&reads);
    let counted = move |kind| {
        counter.fetch_add(usize::from(kind == CallKind::Read), Ordering::Relaxed);
        Fault::None
    };
    let (storage, clock) = (Arc::clone(&scene.shop_db.app.storage), scene.shop_db.clock.clone());
    let storage = Some(Arc::new(Faulty::scripted(storage, clock, counted)) as _);
    let settings = ShopNodeSettings { storage, ..scene.settings.clone() };
    let node = scene.shop_db.node(PARTITION, settings);
    scene.in_time(node.ready()).await;
    scene.run(&node, create_workspace(WS, scene.shop_db.soon())).await.unwrap();
    for _ in 0..40 {
        scene.write(&node, WS, vec![note(bytes)]).await.unwrap();
    }
    reads.store(0, Ordering::Relaxed);
    (node, reads)
}

/// A bit of the key of a counter record flipped on the disk. The record was absent, so its series
/// began again, and gave its numbers a second time without a word. A later version looked at the
/// last 1,000 events for each draw, and so forgot the loss after 1,000 other events.
#[tokio::test]
async fn a_counter_record_that_the_storage_has_lost_is_not_made_again() {
    let scene = scene().await;
    let node = scene.lead_in(&[WS]).await;
    for number in ["A0", "A1"] {
        assert_eq!(scene.write(&node, WS, vec![invoice(1)]).await.unwrap(), [number]);
    }
    scene.stop(&node).await;
    lose(&scene, AppRow::Record(WsId(WS), COUNTER)).await;
    let other = WS + u64::from(PARTITION) * 10;
    let node = scene.lead_in(&[other]).await;
    for notes in [0, 2, 1_000] {
        for _ in 0..notes {
            scene.write(&node, WS, vec![note(1)]).await.unwrap();
        }
        let refused = rejected(scene.write(&node, WS, vec![invoice(1)]).await);
        let Rejection { kind, message } = refused;
        assert_eq!(kind, RejectionKind::Internal);
        assert!(message.contains("has lost the counter record 65601"), "{message}");
        assert!(message.contains("which event 3 of the workspace wrote"), "{message}");
    }
    // A workspace that never drew begins with the first number.
    assert_eq!(scene.write(&node, other, vec![invoice(1)]).await.unwrap(), ["A0"]);
}

/// The storage has lost the counter record, and an event before the one that wrote the record. The
/// search ended at the first event that was absent, and the first number was given again.
#[tokio::test]
async fn a_number_is_refused_if_an_event_that_may_have_drawn_it_is_absent() {
    let scene = scene().await;
    let node = scene.lead_in(&[WS]).await;
    scene.write(&node, WS, vec![note(1)]).await.unwrap();
    scene.write(&node, WS, vec![invoice(1)]).await.unwrap();
    scene.stop(&node).await;
    lose(&scene, AppRow::Record(WsId(WS), COUNTER)).await;
    lose(&scene, AppRow::Wlog(WsId(WS), Offset(2))).await;
    let node = scene.lead_in(&[]).await;
    let refused = rejected(scene.write(&node, WS, vec![invoice(1)]).await);
    assert!(refused.message.contains("event 2"), "{refused}");
    assert!(refused.message.contains("is missing"), "{refused}");
}

/// A command drew the first number of a series, and was then refused. So each repetition searched
/// the last 1,000 events of the workspace again, while the other workspaces of the partition
/// waited.
#[tokio::test]
async fn each_event_is_searched_once() {
    let scene = scene().await;
    let (node, reads) = counting(&scene, 1).await;
    let reads = || reads.swap(0, Ordering::Relaxed);
    let refused = || vec![invoice(1), new_row(2, "shop.Invoice", [("unknown", text("x"))])];
    for (more, expected) in [(0, 3), (0, 0), (1, 1), (0, 0)] {
        for _ in 0..more {
            scene.write(&node, WS, vec![note(1)]).await.unwrap();
        }
        let rejected = scene.write(&node, WS, refused()).await.unwrap_err();
        assert!(matches!(rejected, Refused::Rejected(_)), "{rejected}");
        assert_eq!(reads(), expected, "pieces of 16 events, {more} of them new");
    }
}

/// The first number of a series waits for the search. With large events it would take longer than
/// a command may.
#[tokio::test]
async fn a_search_reads_a_limited_part_of_large_events() {
    let scene = scene().await;
    let (node, reads) = counting(&scene, 1_100_000).await;
    assert_eq!(scene.write(&node, WS, vec![invoice(1)]).await.unwrap(), ["A0"]);
    assert_eq!(reads.load(Ordering::Relaxed), 1, "one piece of 16 events, of 17 MB");
}
