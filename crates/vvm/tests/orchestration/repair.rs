//! Repairs of an operator whose client disconnects, and of a node that is stopped.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use bytes::Bytes;
use clock::Instant;
use eventlog::{AppRow, Entry, Offset, TrustLevel, WsId};
use istorage::{
    AppStorageExt, Call, CallAnswer, Capabilities, Key, SharedStorage, StorageWrapper,
    WrappedDriver,
};
use shop::{StallPoint, article, create_workspace, cud, shop};
use sysvvm::{AppName, NumberPlace, ownership::MemberState};
use tck::storage::Fault;
use vvm::{
    App, AppSettings, ClusterOrder, Launched, MarkRequest, MemberStatus, NumberRequest,
    RepairAction, RepairError, RepairNote, Stage, Vvm,
};

use crate::cluster::{Cluster, PATIENCE, run};

const DAMAGED: Bytes = Bytes::from_static(b"damaged");

/// The last event of partition 7, and its copy.
const LOST: [AppRow; 2] = [AppRow::Plog(7, Offset(3)), AppRow::Wlog(WsId(7), Offset(3))];

fn app(node: &Launched) -> &App {
    node.node().app("acme", "shop").unwrap()
}

async fn stored(cluster: &Cluster, row: AppRow) -> Bytes {
    let soon = cluster.clock.now() + Duration::from_secs(9);
    let storage = cluster.driver.keyspace.get().unwrap();
    storage.get_linearizable(&row.key(), soon).await.unwrap().unwrap()
}

async fn damage(cluster: &Cluster, row: AppRow) {
    let soon = cluster.clock.now() + Duration::from_secs(9);
    let storage = cluster.driver.keyspace.get().unwrap();
    let there = stored(cluster, row).await;
    let swap = storage.compare_and_swap(row.key(), there, DAMAGED, None, soon).await;
    assert!(swap.unwrap().is_applied());
}

/// A node whose partition 7 waits for the repair of its last event.
async fn stuck(cluster: &Cluster) -> Launched {
    let (node, soon) = cluster.with_workspace(cluster.node(1, |_| {})).await;
    for name in ["a", "b"] {
        run(&node, cud(7, article(name), soon)).await;
    }
    node.shutdown().await.unwrap();
    for row in LOST {
        damage(cluster, row).await;
    }
    let node = cluster.launch(2);
    while app(&node).stuck_partitions().await.iter().all(|stuck| stuck.row.is_none()) {
        assert!(cluster.clock.now() < soon, "the damage was not noticed");
        cluster.clock.sleep(Duration::from_millis(5)).await;
    }
    node
}

fn mark(node: &Launched) -> tokio::task::JoinHandle<Result<RepairNote, RepairError>> {
    let node = node.node().clone();
    let request = MarkRequest {
        partition: 7,
        event: Offset(3),
        place: Some((WsId(7), Offset(3))),
        numbers: None,
        ignores_hint: false,
        action: None,
        is_dry_run: false,
    };
    tokio::spawn(async move { node.app("acme", "shop").unwrap().mark_event(request).await })
}

/// Each list was a task that outlived its client. While the storage was slow, 1,000 lists whose
/// clients had left were 1,000 tasks.
#[tokio::test]
async fn a_list_ends_with_its_client() {
    let cluster = Cluster::new();
    let node = stuck(&cluster).await;
    let stall = cluster.driver.stall.get().unwrap().clone();
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = alive();
    stall.arm(StallPoint::Before(1));
    for _ in 0..100 {
        let list = app(&node).stuck_partitions();
        let _ = tokio::time::timeout(Duration::from_millis(1), list).await;
    }
    let deadline = cluster.clock.now() + PATIENCE;
    while alive() > before + 10 {
        assert!(cluster.clock.now() < deadline, "{} tasks, and before {before}", alive());
        tokio::task::yield_now().await;
    }
    stall.go_on();
    node.shutdown().await.unwrap();
}

/// The copy of an event was damaged between the dry run and the repair. The operator had confirmed
/// that the event is restored, and its content was lost.
#[tokio::test]
async fn another_repair_than_the_confirmed_one_is_refused() {
    let cluster = Cluster::new();
    let node = stuck(&cluster).await;
    let request = |action, is_dry_run| MarkRequest {
        partition: 7,
        event: Offset(3),
        place: Some((WsId(7), Offset(3))),
        numbers: None,
        ignores_hint: false,
        action,
        is_dry_run,
    };
    let plan = app(&node).mark_event(request(None, true)).await.unwrap();
    assert_eq!((plan.action, plan.is_done), (RepairAction::Marked, false));
    let other = app(&node).mark_event(request(Some(RepairAction::Restored), false)).await;
    assert!(matches!(other, Err(RepairError::OtherAction(RepairAction::Marked))), "{other:?}");
    assert_eq!(stored(&cluster, LOST[0]).await, DAMAGED, "nothing was written");
    assert_eq!(app(&node).repairs().await.unwrap(), [], "nothing was repaired");
    app(&node).mark_event(request(Some(RepairAction::Marked), false)).await.unwrap();
    node.shutdown().await.unwrap();
}

/// The row of a number is repaired only if it holds the bytes that the operator has seen, and the
/// table of repairs has the repair only if there was one.
#[tokio::test]
async fn a_number_is_repaired_in_the_row_that_the_operator_has_seen() {
    let cluster = Cluster::new();
    let (node, soon) = cluster.with_workspace(cluster.node(1, |_| {})).await;
    run(&node, cud(7, article("a"), soon)).await;
    node.shutdown().await.unwrap();
    // Sequence 1 of workspace 7 of the first application.
    let pkey = [&[0, 0, 0, 3, 0, 0, 0, 1][..], &7_u64.to_be_bytes()].concat();
    let key = Key::new(pkey, 1_u16.to_be_bytes().to_vec());
    let system = cluster.system().await;
    let there = system.storage().get_linearizable(&key, soon).await.unwrap().unwrap();
    let swap = system.storage().compare_and_swap(key.clone(), there.clone(), DAMAGED, None, soon);
    assert!(swap.await.unwrap().is_applied());

    let node = cluster.launch(2);
    cluster.until(&node, Stage::Leading).await;
    let request = |digest: Option<&str>| NumberRequest {
        partition: 7,
        place: NumberPlace::Last { ws: 7, seq: 1 },
        number: None,
        digest: digest.map(str::to_owned),
        is_dry_run: digest.is_none(),
    };
    let seen = app(&node).repair_number(request(None)).await.unwrap();
    assert_eq!((&seen.numbers, seen.is_done), (&[(1, 2)].into(), false));
    let other = app(&node).repair_number(request(Some("other bytes"))).await;
    assert!(matches!(other, Err(RepairError::Changed { .. })), "{other:?}");
    let row = async || system.storage().get_linearizable(&key, soon).await.unwrap().unwrap();
    assert_eq!(row().await, DAMAGED, "nothing was written");
    assert_eq!(app(&node).repairs().await.unwrap(), [], "nothing was repaired");
    let done = app(&node).repair_number(request(Some(&seen.digest))).await.unwrap();
    assert!(done.is_done);
    assert_eq!(row().await, there);
    assert_eq!(app(&node).repairs().await.unwrap(), [done]);
    run(&node, cud(7, article("b"), soon)).await;
    node.shutdown().await.unwrap();
}

/// The client of a repair disconnected between the two writes of the repair. The repair was dropped
/// half way: the log of the workspace had the marker, and the log of the partition did not.
#[tokio::test]
async fn a_repair_goes_on_after_its_client_is_gone() {
    let cluster = Cluster::new();
    let node = stuck(&cluster).await;
    let stall = cluster.driver.stall.get().unwrap().clone();
    stall.arm(StallPoint::AfterWrite(1));
    let client = mark(&node);
    stall.until_still().await;
    client.abort();
    assert!(client.await.unwrap_err().is_cancelled());
    assert_eq!(stored(&cluster, LOST[0]).await, DAMAGED, "the second write was already done");
    stall.go_on();
    let until = cluster.clock.now() + Duration::from_secs(9);
    while !app(&node).repairs().await.unwrap().iter().any(|repair| repair.is_done) {
        assert!(cluster.clock.now() < until, "the repair did not end");
        cluster.clock.sleep(Duration::from_millis(5)).await;
    }
    for row in LOST {
        let entry = Entry::from_bytes(&stored(&cluster, row).await).unwrap();
        assert!(matches!(entry, Entry::Marker(_)), "{entry:?}");
    }
    let soon = cluster.clock.now() + Duration::from_secs(9);
    let commands = app(&node).at(WsId(7)).unwrap().commands().clone();
    commands.ready(soon).await.unwrap();
    node.shutdown().await.unwrap();
}

/// How long after it was sent a write of the next trial may land.
const LATE_WRITE: Duration = Duration::from_secs(3);

/// A storage whose writes may land late.
#[derive(Debug)]
struct LateStorage(SharedStorage);

impl StorageWrapper for LateStorage {
    fn inner(&self) -> &SharedStorage {
        &self.0
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { late_write: LATE_WRITE, ..self.0.capabilities() }
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> istorage::Result<CallAnswer> {
        call.send(&self.0, deadline).await
    }
}

/// At level 2 nothing fences a late write. A partition was given to another node right after a
/// repair whose write had no answer. The write could land in the log of the next owner.
#[tokio::test]
async fn a_partition_with_an_unanswered_write_of_a_repair_is_held_back_at_level_2() {
    let cluster = Cluster::new();
    let launch = |number| {
        let (driver, clock) = (Arc::clone(&cluster.driver) as _, cluster.clock.clone());
        let driver = WrappedDriver::new(driver, |storage| Arc::new(LateStorage(storage)));
        let name = AppName::new("acme", "shop").unwrap();
        let app = AppSettings { level: TrustLevel::Two, ..AppSettings::new(name, shop()) };
        let mut settings = cluster.settings(number);
        settings.seats = NonZeroU32::new(2).unwrap();
        Vvm::builder(Arc::new(driver), clock, settings).with_app(app).build().unwrap().launch()
    };
    let first = launch(1);
    cluster.until(&first, Stage::Leading).await;
    let soon = cluster.clock.now() + PATIENCE;
    run(&first, create_workspace(7, soon)).await;
    run(&first, cud(7, article("a"), soon)).await;
    run(&first, cud(7, article("b"), soon)).await;
    first.shutdown().await.unwrap();
    for row in LOST {
        damage(&cluster, row).await;
    }
    let first = launch(2);
    while app(&first).stuck_partitions().await.iter().all(|stuck| stuck.row.is_none()) {
        assert!(cluster.clock.now() < soon, "the damage was not noticed");
        cluster.clock.sleep(Duration::from_millis(5)).await;
    }
    *cluster.driver.writes.lock().unwrap() = Fault::NotAppliedButError;
    let failed = mark(&first).await.unwrap().unwrap_err();
    assert!(matches!(failed, RepairError::Failed(_)), "{failed}");
    *cluster.driver.writes.lock().unwrap() = Fault::None;

    // The mark was sent again for some seconds.
    let soon = cluster.clock.now() + PATIENCE;
    let second = launch(3);
    let to = loop {
        let members = first.node().cluster_status().members;
        let is_it = |member: &&MemberStatus| member.advertised == second.node().advertised();
        match members.iter().find(is_it) {
            Some(member) if member.state == MemberState::Ready => break member.id.clone(),
            _ => cluster.clock.sleep(Duration::from_millis(5)).await,
        }
        assert!(cluster.clock.now() < soon, "the second node is not seen");
    };
    let start = cluster.clock.now();
    let name = "acme/shop".to_owned();
    let order = ClusterOrder::Move { app: name, partition: 7, to: to.parse().unwrap() };
    order.give(first.node()).await.unwrap();
    while app(&second).at(WsId(7)).is_err() {
        assert!(cluster.clock.now() < start + PATIENCE, "the partition does not move");
        cluster.clock.sleep(Duration::from_millis(5)).await;
    }
    let took = cluster.clock.now() - start;
    assert!(took >= LATE_WRITE, "the partition moved after {took:?}");
    for node in [first, second] {
        node.shutdown().await.unwrap();
    }
}

/// A node was stopped during a write of a repair, and released its lease at once. The write landed
/// under the next leader.
#[tokio::test]
async fn a_lease_is_not_released_during_a_write_of_a_repair() {
    for fault in [Fault::Slow(Duration::from_millis(900)), Fault::NotAppliedButError] {
        let cluster = Cluster::new();
        let node = stuck(&cluster).await;
        *cluster.driver.writes.lock().unwrap() = fault;
        let client = mark(&node);
        let soon = cluster.clock.now() + Duration::from_secs(9);
        // The row in the table of repairs comes right before the write.
        while app(&node).repairs().await.unwrap().is_empty() {
            assert!(cluster.clock.now() < soon, "the repair did not begin");
            cluster.clock.sleep(Duration::from_millis(1)).await;
        }
        cluster.clock.sleep(Duration::from_millis(100)).await;
        node.shutdown().await.unwrap();
        let error = client.await.unwrap().unwrap_err();
        if fault == Fault::NotAppliedButError {
            assert!(matches!(error, RepairError::Failed(_)), "{error}");
            assert!(cluster.lease(1).await.is_some(), "the write may still land");
        } else {
            assert_ne!(stored(&cluster, LOST[1]).await, DAMAGED, "the write was under way");
            assert!(cluster.lease(1).await.is_none(), "every write was answered: {error}");
        }
    }
}
