//! The set of partitions that run on a node, and the ends of their logs.

#![allow(clippy::unwrap_used)]

use std::{sync::Arc, time::Duration};

use eventlog::{Epoch, Log, Offset, SingleNodeFence, TrustLevel, WsId};
use isequencer::standard;
use processor::{NotDeployable, PartitionEnd, PartitionSettings, Partitions, Status};
use seqstorage::PartitionStorage;
use shop::{ShopDatabase, ShopNodeSettings, article, create_workspace, cud};

#[tokio::test]
async fn a_partition_is_deployed_at_most_once_under_an_epoch() {
    let shop_db = ShopDatabase::in_memory().await;
    let count = shop_db.app.entry.partitions;
    let node = Partitions::new(Arc::clone(&shop_db.application), count, shop_db.clock.clone());
    let deploy = |partition: u16, epoch: u64| {
        let settings = eventlog::LogSettings::new(count);
        let (storage, clock) = (Arc::clone(&shop_db.app.storage), shop_db.clock.clone());
        let fence = Arc::new(SingleNodeFence(Epoch(epoch)));
        let log = Arc::new(Log::new(storage, clock, fence, partition, settings));
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
    assert!(
        matches!(again, PartitionEnd::Unproved(_)),
        "that it is gone proves nothing: {again:?}"
    );
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
/// ends in front of the acknowledged event. Seed 7009834 of the simulation found it.
#[tokio::test]
async fn the_end_of_a_log_is_behind_its_last_event_while_the_stored_offset_is_too_low() {
    let shop_db = ShopDatabase::in_memory().await;
    let node = shop_db.node(1, ShopNodeSettings::at(TrustLevel::Zero));
    node.ready().await;
    let (ws, soon) = (WsId(11), || shop_db.soon());
    let end = async |stored: Option<u64>| {
        node.commands.wlog_end(ws, || std::future::ready(Ok(stored))).await.unwrap().unwrap()
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
