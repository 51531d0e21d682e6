//! The logs and records that a node returns to its clients.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use eventlog::{AppRow, DamagedRow, Offset, Reader, RecordId, WsId};
use futures::StreamExt;
use isequencer::standard::FIRST_CRECORD_ID;
use istorage::AppStorageExt;
use processor::{Busy, LogName, Refused};
use shop::{StallPoint, article, child, cud, new_row, text, update};
use sysvvm::AppName;
use tck::storage::Fault;
use vvm::{AppSettings, NumbersIn, Stage};

use crate::{
    PARTITIONS,
    cluster::{Cluster, PATIENCE, run, send},
};

const LOG: LogName = LogName::Workspace(WsId(7));

/// One bit of the storage was wrong. The node returned the log of a workspace as if the log ended
/// before the event that could not be found. The list of the documents ended too early in the same
/// way.
#[tokio::test]
async fn a_log_with_a_missing_event_is_cut() {
    let cluster = Cluster::new();
    let (node, soon) = cluster.with_workspace(cluster.node(1, |_| {})).await;
    for name in ["a", "b", "c"] {
        run(&node, cud(7, article(name), soon)).await;
    }
    let storage = cluster.driver.keyspace.get().unwrap();
    let app = node.node().app("acme", "shop").unwrap();
    let here = app.at(WsId(7)).unwrap();
    let damaged = async || {
        let status = node.node().status().await;
        let partitions = &status.apps[0].here;
        partitions.iter().find(|partition| partition.number == 7).unwrap().damaged.clone()
    };
    // Unflushed numbers and stored numbers both tell the end of the log. The absence of the last
    // event is the hardest to notice.
    for (wlog, waits) in [(3, 0), (4, 0), (4, 500)] {
        cluster.clock.sleep(Duration::from_millis(waits)).await;
        let row = AppRow::Wlog(WsId(7), Offset(wlog));
        let there = storage.get_linearizable(&row.key(), soon).await.unwrap().unwrap();
        let gone = storage.compare_and_delete(row.key(), there.clone(), soon).await.unwrap();
        assert!(gone.is_applied());
        for from in [1, wlog] {
            let read: Vec<_> = here.log(LOG).read(Offset(from)).unwrap().collect().await;
            let (last, whole) = read.split_last().unwrap();
            assert_eq!(whole.len() as u64, wlog - from);
            assert!(whole.iter().all(Result::is_ok), "{whole:?}");
            let is_reported = matches!(
                last,
                Err(eventlog::Error::DamagedRow(DamagedRow::Missing(missing))) if *missing == row
            );
            assert!(is_reported, "{last:?}");
        }
        let rows = damaged().await;
        assert!(rows.len() == 1 && rows[0].contains(&row.to_string()), "{rows:?}");
        // The events before the missing one can be read as before, and other commands run as
        // before.
        let front: Vec<_> = here.log(LOG).read(Offset::FIRST).unwrap().take(2).collect().await;
        assert!(front.iter().all(Result::is_ok), "{front:?}");
        assert_eq!(damaged().await.len(), 1);

        let restored = storage.insert_if_not_exists(row.key(), there, None, soon).await.unwrap();
        assert!(restored.is_applied());
        let read: Vec<_> = here.log(LOG).read(Offset::FIRST).unwrap().collect().await;
        assert_eq!(read.iter().filter(|read| read.is_ok()).count(), 4, "{read:?}");
        assert!(damaged().await.is_empty(), "it is whole again");
    }
    run(&node, cud(7, article("d"), soon)).await;
    node.shutdown().await.unwrap();
}

/// The bytes of one record were in the row of another record. Only a client that read that other
/// record could notice, and only by looking at the id.
#[tokio::test]
async fn a_record_in_the_row_of_another_is_reported_in_the_status() {
    let cluster = Cluster::new();
    let (node, soon) = cluster.with_workspace(cluster.node(1, |_| {})).await;
    let done = run(&node, cud(7, article("a"), soon)).await;
    let [first, second] = [0, 1].map(|n| done.answer.ids[n].1);
    let storage = cluster.driver.keyspace.get().unwrap();
    let keys = [first, second].map(|id| AppRow::Record(WsId(7), id).key());
    let mut there = Vec::new();
    for key in &keys {
        there.push(storage.get_linearizable(key, soon).await.unwrap().unwrap());
    }
    let swap = async |old: &Bytes, new: &Bytes| {
        let swap = storage.compare_and_swap(keys[1].clone(), old.clone(), new.clone(), None, soon);
        assert!(swap.await.unwrap().is_applied());
    };
    swap(&there[1], &there[0]).await;
    let here = node.node().app("acme", "shop").unwrap().at(WsId(7)).unwrap();
    here.record(WsId(7), second).await.unwrap_err();
    let list: Vec<_> = here.commands().records(WsId(7), first, second).collect().await;
    assert!(list.len() == 2 && list[0].is_ok() && list[1].is_err(), "{list:?}");
    // Commands for the intact record go on. Commands for the damaged record are refused.
    let refused = send(&node, cud(7, vec![update(second, None, "x")], soon)).await.unwrap_err();
    assert!(matches!(refused, Refused::Rejected(_)), "{refused:?}");
    run(&node, cud(7, vec![update(first, None, "x")], soon)).await;
    let status = node.node().status().await;
    let partition = status.apps[0].here.iter().find(|partition| partition.number == 7).unwrap();
    assert_eq!(partition.status, "ready");
    let rows = &partition.damaged;
    let is_reported =
        rows.len() == 1 && rows[0].contains(&AppRow::Record(WsId(7), second).to_string());
    assert!(is_reported && partition.damaged_rows == 1, "{rows:?}");
    swap(&there[0], &there[1]).await;
    here.record(WsId(7), second).await.unwrap();
    let status = node.node().status().await;
    assert!(status.apps[0].here.iter().all(|partition| partition.damaged.is_empty()));
    node.shutdown().await.unwrap();
}

/// The last event is already in the log, but its records are not written yet.
#[tokio::test]
async fn a_log_ends_with_the_last_event_that_is_applied() {
    let cluster = Cluster::new();
    let (node, soon) = cluster.with_workspace(cluster.node(1, |_| {})).await;
    // Writes are applied, but the answers are errors.
    *cluster.driver.writes.lock().unwrap() = Fault::AppliedButError;
    let under_way = tokio::spawn(send(&node, cud(7, article("a"), soon)));
    let storage = Arc::clone(cluster.driver.keyspace.get().unwrap());
    let stored = Reader::new(storage, cluster.clock.clone(), PATIENCE, PARTITIONS);
    while stored.wlog(WsId(7), Offset::FIRST, None).count().await < 2 {
        assert!(cluster.clock.now() < soon, "it is not written");
        cluster.clock.sleep(Duration::from_millis(2)).await;
    }
    let here = node.node().app("acme", "shop").unwrap().at(WsId(7)).unwrap();
    // The partition has no other workspace.
    for log in [LOG, LogName::Partition].map(|name| here.log(name)) {
        assert_eq!(log.read(Offset::FIRST).unwrap().count().await, 1, "{log:?}");
        assert_eq!(log.read(Offset(2)).unwrap().count().await, 0, "{log:?}");
        assert_eq!(log.end().await.unwrap().unwrap(), Offset(2), "{log:?}");
    }
    let mut watch = here.log(LOG).watch();
    let known = watch.changes();
    *cluster.driver.writes.lock().unwrap() = Fault::None;
    under_way.await.unwrap().unwrap();
    watch.changed(known).await.unwrap();
    for log in [LOG, LogName::Partition].map(|name| here.log(name)) {
        assert_eq!(log.read(Offset::FIRST).unwrap().count().await, 2, "{log:?}");
        assert_eq!(log.end().await.unwrap().unwrap(), Offset(3), "{log:?}");
    }
    node.shutdown().await.unwrap();
    watch.changed(u64::MAX).await.unwrap_err();
}

/// The log was returned as empty, although events had been acknowledged.
#[tokio::test]
async fn a_log_is_not_answered_before_its_first_read() {
    let cluster = Cluster::new();
    let (node, soon) = cluster.with_workspace(cluster.node(1, |_| {})).await;
    node.shutdown().await.unwrap();

    let stall = cluster.driver.stall.get().unwrap().clone();
    stall.arm(StallPoint::Before(5));
    let node = cluster.launch(1);
    stall.until_still().await;
    let app = node.node().app("acme", "shop").unwrap();
    let here = loop {
        match app.at(WsId(7)) {
            Ok(here) => break here,
            Err(_) => cluster.clock.sleep(Duration::from_millis(2)).await,
        }
        assert!(cluster.clock.now() < soon, "it is not deployed");
    };
    let result = here.log(LOG).read(Offset::FIRST).map(|_| ());
    assert!(matches!(result, Err(Busy::Recovering(None))), "{result:?}");
    stall.go_on();
    cluster.until(&node, Stage::Leading).await;
    assert_eq!(here.log(LOG).read(Offset::FIRST).unwrap().count().await, 1);
    node.shutdown().await.unwrap();
}

/// Each row was searched among all other rows, up to the topmost parent. The command took minutes,
/// and blocked everything else.
#[tokio::test]
async fn thousands_of_nested_rows_are_handled_quickly() {
    let cluster = Cluster::new();
    let (node, soon) = cluster.with_workspace(cluster.node(1, |_| {})).await;
    let part = |id| child(id, "shop.Part", (id + 1, "parts"), []);
    let mut rows: Vec<_> = (1..4_000).map(part).collect();
    rows.push(new_row(4_000, "shop.Article", []));
    let done = run(&node, cud(7, rows, soon)).await;
    assert_eq!(done.answer.ids.len(), 4_000);
    node.shutdown().await.unwrap();
}

/// All records were read and encoded, gigabytes of them, before the node found that no event has
/// room for them.
#[tokio::test]
async fn a_command_that_changes_too_much_is_refused_while_it_is_read() {
    let cluster = Cluster::new();
    let (node, soon) = cluster.with_workspace(cluster.node(1, |_| {})).await;
    let large = || vec![new_row(1, "shop.Article", [("name", text("x".repeat(4 << 20)))])];
    let mut ids = Vec::new();
    for _ in 0..12 {
        ids.push(run(&node, cud(7, large(), soon)).await.answer.ids[0].1);
    }
    let here = node.node().app("acme", "shop").unwrap().at(WsId(7)).unwrap();
    let change = |id: &RecordId| update(*id, None, "x");
    let refused =
        here.commands().run(cud(7, ids.iter().map(change).collect(), soon)).await.unwrap_err();
    assert!(refused.to_string().contains("the rows that it changes"), "{refused}");
    // A few of these records are not too much.
    here.commands().run(cud(7, ids[..3].iter().map(change).collect(), soon)).await.unwrap();
    node.shutdown().await.unwrap();
}

/// An operator reads the numbers in the same way, wherever the application keeps them.
#[tokio::test]
async fn the_stored_numbers_of_a_workspace_can_be_read_in_both_places() {
    for (numbers, place) in
        [(NumbersIn::System, "the system keyspace"), (NumbersIn::View, "sys.SequencesView")]
    {
        let cluster = Cluster::new();
        let app = AppSettings::new(AppName::new("acme", "shop").unwrap(), shop::shop());
        let app = AppSettings { numbers, ..app };
        let (node, soon) = cluster.with_workspace(cluster.node_of(1, app, |_| {})).await;
        run(&node, cud(7, article("a"), soon)).await;
        let here = node.node().app("acme", "shop").unwrap().at(WsId(7)).unwrap();
        assert_eq!(here.sequences_place(), place);
        let last = FIRST_CRECORD_ID + 2;
        let expected = [
            (0, 0, "sys.PLogOffsetSeq", 2),
            (7, 1, "sys.WLogOffsetSeq", 2),
            (7, 3, "sys.CRecIDSeq", last),
        ];
        loop {
            let stored = here.sequences(WsId(7)).await.unwrap();
            let rows: Vec<_> =
                stored.iter().map(|row| (row.ws.0, row.seq.0, &*row.name, row.last)).collect();
            if rows == expected {
                break;
            }
            assert!(cluster.clock.now() < soon, "{rows:?}");
            cluster.clock.sleep(Duration::from_millis(5)).await;
        }
        let missing = here.sequences(WsId(17)).await.unwrap();
        assert_eq!(missing.len(), 1, "only the partition has numbers: {missing:?}");
        node.shutdown().await.unwrap();
    }
}
