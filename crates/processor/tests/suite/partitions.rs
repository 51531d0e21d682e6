//! The set of partitions that run on a node, the ends of their logs, and their memory.

use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use eventlog::{
    AppRow, Entry, Epoch, FencingEntry, LogWriter, Offset, SingleNodeFence, TrustLevel, WsId,
};
use isequencer::standard;
use istorage::{AppStorageExt, CallKind};
use processor::{
    NotDeployable, PartitionEnd, PartitionSettings, Partitions, Refused, RejectionKind, Status,
};
use seqstorage::PartitionStorage;
use shop::{
    LateStorage, ShopDatabase, ShopNode, ShopNodeSettings, TestFence, article, create_workspace,
    cud, sysvvm::StoredOffset,
};
use tck::storage::{Fault, Faulty};

#[tokio::test]
async fn a_partition_is_deployed_at_most_once_under_an_epoch() {
    let shop_db = ShopDatabase::in_memory().await;
    let count = shop_db.app.entry.partitions;
    let node = Partitions::new(Arc::clone(&shop_db.application), count, shop_db.clock.clone());
    let deploy = |partition: u16, epoch: u64| {
        let settings = eventlog::LogSettings::new(count);
        let (storage, clock) = (Arc::clone(&shop_db.app.storage), shop_db.clock.clone());
        let fence = Arc::new(SingleNodeFence(Epoch(epoch)));
        let log = Arc::new(LogWriter::new(storage, clock, fence, partition, settings));
        let numbers = shop_db.system.numbers(&shop_db.app.entry);
        let numbers = PartitionStorage::in_system(numbers, Arc::clone(&log));
        node.deploy(log, Arc::new(numbers), PartitionSettings::new(format!("{partition}")))
    };
    let ready = async |partition: u16| {
        while node.commands(partition).unwrap().status() != Status::Ready {
            shop_db.clock.sleep(Duration::from_millis(1)).await;
        }
    };
    assert_eq!(node.of(WsId(27)), 7);
    assert!(node.commands(7).is_none(), "partition 7 is not deployed yet");
    assert_eq!(deploy(10, 1), Err(NotDeployable::Unknown(10, count)));
    deploy(7, 1).unwrap();
    assert_eq!(deploy(7, 1), Err(NotDeployable::Twice(7)));
    deploy(3, 1).unwrap();
    for partition in [7, 3] {
        ready(partition).await;
    }
    assert_eq!(node.status(), [(3, Status::Ready), (7, Status::Ready)]);
    node.commands(7).unwrap().run(create_workspace(27, shop_db.soon())).await.unwrap();
    // Another node may own the partition by now, although the partition was stopped in order.
    assert_eq!(node.undeploy(7, shop_db.soon()).await, PartitionEnd::Stopped);
    assert_eq!(node.undeploy(7, shop_db.soon()).await, PartitionEnd::Stopped, "it stays proved");
    assert_eq!(deploy(7, 1), Err(NotDeployable::Used(7, Epoch(1))));
    deploy(7, 2).unwrap();
    ready(7).await;
    node.commands(7).unwrap().run(cud(27, article("a"), shop_db.soon())).await.unwrap();
    // The partition had no time to stop in order, so writes of the partition may still be under
    // way.
    let ended = node.undeploy(7, shop_db.clock.now()).await;
    assert!(matches!(ended, PartitionEnd::Late | PartitionEnd::Unproved(_)), "{ended:?}");
    let again = node.undeploy(7, shop_db.soon()).await;
    assert!(matches!(again, PartitionEnd::Unproved(_)), "its absence proves nothing: {again:?}");
    for epoch in [1, 2] {
        assert_eq!(deploy(7, epoch), Err(NotDeployable::Used(7, Epoch(2))));
    }
    deploy(7, 3).unwrap();
    ready(7).await;
    node.commands(7).unwrap().run(cud(27, article("b"), shop_db.soon())).await.unwrap();
    assert_eq!(node.undeploy(7, shop_db.soon()).await, PartitionEnd::Stopped);
    assert_eq!(node.undeploy(9, shop_db.soon()).await, PartitionEnd::Stopped, "it never was");
}

/// A group was written in part, and one of its commands was acknowledged. While the partition
/// recovered, it knew only the stored last offset of the log. So a reader was told that the log
/// ends before the acknowledged event. Seed 7009834 of the simulation found it.
#[tokio::test]
async fn the_end_of_a_log_is_behind_its_last_event_while_the_stored_offset_is_too_low() {
    let shop_db = ShopDatabase::in_memory().await;
    let node = shop_db.node(1, ShopNodeSettings::at(TrustLevel::Zero));
    node.ready().await;
    let (ws, soon) = (WsId(11), || shop_db.soon());
    let end = async |stored: Option<u64>| {
        node.commands.wlog_end(ws, || ready(Ok(stored))).await.unwrap().unwrap()
    };
    assert_eq!(end(None).await, Offset(1), "an empty log");
    node.commands.run(create_workspace(11, soon())).await.unwrap();
    for name in ["a", "b"] {
        node.commands.run(cud(11, article(name), soon())).await.unwrap();
    }
    // The partition forgets the offset when the storage has it.
    let deadline = soon();
    let stored = async || {
        let known = node.commands.last_number(ws, standard::WLOG_OFFSET, async { Ok(None) });
        known.await.unwrap().is_none()
    };
    while !stored().await {
        assert!(shop_db.clock.now() < deadline, "the offset was never stored");
        shop_db.clock.sleep(Duration::from_millis(1)).await;
    }
    for last in [None, Some(1), Some(2), Some(3)] {
        assert_eq!(end(last).await, Offset(4), "with the stored offset {last:?}");
    }
}

/// Makes partition 1 as if its log had events up to an offset.
async fn ends_at(shop_db: &ShopDatabase, next: u64) {
    let (epoch, plog, soon) = (Epoch(1), Offset(next - 1), shop_db.soon());
    let last = FencingEntry { epoch, partition: 1, plog, time: shop_db.clock.wall() };
    let (key, bytes) = (AppRow::Plog(1, plog).key(), Entry::Fencing(last).to_bytes());
    shop_db.app.storage.put(key, bytes, soon).await.unwrap();
    let stored = StoredOffset { partition: 1, epoch: epoch.0, next };
    let numbers = shop_db.system.numbers(&shop_db.app.entry);
    numbers.store(&[], stored, || ready(Ok(soon))).await.unwrap();
}

async fn refusal(shop_db: &ShopDatabase, node: &ShopNode, ws: u64) -> (RejectionKind, String) {
    match node.commands.run(cud(ws, article("a"), shop_db.soon())).await {
        Err(Refused::Rejected(rejection)) => (rejection.kind, rejection.message),
        other => panic!("{other:?}"),
    }
}

/// The event at the last offset was acknowledged. But the offset after it had no order of a write,
/// so it could not be stored. The senders of commands were told to try again, and no later leader
/// ever became ready: the records after the stored offset could not be read any more.
#[tokio::test]
async fn a_partition_without_an_offset_refuses_commands_and_still_starts() {
    for level in [TrustLevel::Zero, TrustLevel::One, TrustLevel::Two] {
        let shop_db = ShopDatabase::in_memory().await;
        let next = Offset::LAST.0 - 2;
        ends_at(&shop_db, next).await;
        // Only where writes may land late, a leader fences its log.
        let late = LateStorage::of(Arc::clone(&shop_db.app.storage));
        let settings = || {
            let storage = Some(Arc::clone(&late) as _);
            ShopNodeSettings { storage, ..ShopNodeSettings::at(level) }
        };
        let node = shop_db.node_of(1, TestFence::of(2), settings());
        node.ready().await;
        node.commands.run(create_workspace(1, shop_db.soon())).await.unwrap();
        for name in ["second to last", "last"] {
            node.commands.run(cud(1, article(name), shop_db.soon())).await.unwrap();
        }
        let at_the_end = refusal(&shop_db, &node, 1).await;
        assert_eq!(at_the_end.0, RejectionKind::NoNumber);
        assert!(at_the_end.1.contains("no offset left"), "{at_the_end:?}");
        assert_eq!(node.stop().await, PartitionEnd::Stopped);

        // The next leaders have no offset for a fencing entry, and need none.
        for epoch in [3, 4] {
            let node = shop_db.node_of(1, TestFence::of(epoch), settings());
            node.ready().await;
            assert_eq!(refusal(&shop_db, &node, 1).await, at_the_end);
            let elsewhere = refusal(&shop_db, &node, 11).await;
            assert_eq!(elsewhere.0, RejectionKind::NotFound, "{elsewhere:?}");
            assert_eq!(node.stop().await, PartitionEnd::Stopped);
        }
        let behind = AppRow::Plog(1, Offset::LAST.next()).key();
        let behind = shop_db.app.storage.get_linearizable(&behind, shop_db.soon()).await;
        assert_eq!(behind.unwrap(), None);
    }
}

/// The memory of a partition does not grow with its workspaces: it remembers the kinds of those
/// that were used last.
#[tokio::test]
async fn a_partition_remembers_the_kinds_of_few_workspaces() {
    let shop_db = ShopDatabase::in_memory().await;
    let reads = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&reads);
    let counted = move |kind| {
        let is_read = matches!(kind, CallKind::Get | CallKind::GetBatch | CallKind::GetValues);
        counter.fetch_add(usize::from(is_read), Ordering::Relaxed);
        Fault::None
    };
    let storage = Arc::clone(&shop_db.app.storage);
    let storage = Arc::new(Faulty::scripted(storage, shop_db.clock.clone(), counted));
    let mut settings = ShopNodeSettings::at(TrustLevel::Zero);
    settings.storage = Some(storage);
    settings.partition.workspaces = 2;
    let node = shop_db.node(1, settings);
    node.ready().await;
    // Whether a command reads, although the numbers of its workspace are in memory.
    let reads_kind = async |ws| {
        let before = reads.load(Ordering::Relaxed);
        node.commands.run(cud(ws, article("a"), shop_db.soon())).await.unwrap();
        reads.load(Ordering::Relaxed) > before
    };
    for ws in [1, 11, 21] {
        node.commands.run(create_workspace(ws, shop_db.soon())).await.unwrap();
        reads_kind(ws).await;
    }
    assert!(!reads_kind(21).await && !reads_kind(11).await, "the last two");
    assert!(reads_kind(1).await, "the one before");
    assert!(!reads_kind(11).await && reads_kind(21).await, "it took the place of the oldest");
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}
