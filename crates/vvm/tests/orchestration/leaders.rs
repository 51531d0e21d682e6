//! The leaders that a node reports while its storage does not answer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ielections::Timing;
use istorage::{CallKind, StorageDriver, WrappedDriver};
use shop::shop;
use sysvvm::AppName;
use tck::storage::{Fault, Faulty};
use vvm::{AppSettings, NodeSettings, Stage, Vvm};

use crate::cluster::{Cluster, owner};

/// The database of a cluster, as seen by a node whose reads get no answers while the switch is on.
fn hanging(cluster: &Cluster) -> (Arc<dyn StorageDriver>, Arc<AtomicBool>) {
    let is_hung = Arc::new(AtomicBool::new(false));
    let (hangs, clock) = (Arc::clone(&is_hung), cluster.clock.clone());
    let driver = Arc::clone(&cluster.driver) as Arc<dyn StorageDriver>;
    let driver = WrappedDriver::new(driver, move |storage| {
        let hangs = Arc::clone(&hangs);
        let script = move |op| match op {
            CallKind::Read if hangs.load(Ordering::SeqCst) => Fault::Hang,
            _ => Fault::None,
        };
        Arc::new(Faulty::scripted(storage, clock.clone(), script))
    });
    (Arc::new(driver), is_hung)
}

/// A node that got no more answers from its storage went on to send clients to the leader that it
/// had seen last, for ever.
#[tokio::test]
async fn clients_are_sent_to_a_leader_only_while_its_lease_can_last() {
    let cluster = Cluster::new();
    let leader = cluster.launch(1);
    cluster.until(&leader, Stage::Leading).await;
    let (driver, is_hung) = hanging(&cluster);
    let lease = Timing::of(Duration::from_secs(4));
    let request_call_timeout = Duration::from_millis(400);
    let settings = NodeSettings { lease, request_call_timeout, ..cluster.settings(2) };
    let app = AppSettings::new(AppName::new("acme", "shop").unwrap(), shop());
    let node = Vvm::builder(driver, cluster.clock.clone(), settings).with_app(app);
    let node = node.build().unwrap().launch();
    cluster.until(&node, Stage::Waiting).await;
    let at = Some(leader.node().advertised());
    assert_eq!(owner(node.node()).await, at);
    is_hung.store(true, Ordering::SeqCst);
    cluster.clock.sleep(Duration::from_secs(1)).await;
    assert_eq!(owner(node.node()).await, at, "its lease lasts");
    cluster.clock.sleep(Duration::from_secs(3)).await;
    assert_eq!(owner(node.node()).await, None, "another one may lead");
    is_hung.store(false, Ordering::SeqCst);
    node.shutdown().await.unwrap();
    leader.shutdown().await.unwrap();
}

/// A request asked the storage for the leaders and held a lock until the storage answered.
/// `/status` waited for the lock, so a storage that hung made the admin endpoint hang.
#[tokio::test]
async fn the_status_does_not_wait_for_a_storage_that_hangs() {
    let cluster = Cluster::new();
    let (driver, is_hung) = hanging(&cluster);
    let lease = Timing::of(Duration::from_secs(200));
    let settings = NodeSettings { lease, ..cluster.settings(1) };
    let app = AppSettings::new(AppName::new("acme", "shop").unwrap(), shop());
    let node = Vvm::builder(driver, cluster.clock.clone(), settings).with_app(app);
    let node = node.build().unwrap().launch();
    cluster.until(&node, Stage::Leading).await;
    let before = node.node().status().await;
    assert_eq!(before.leaders[&1], node.node().advertised());
    assert!(before.storage.answers);

    is_hung.store(true, Ordering::SeqCst);
    // Wait until the known answer is no longer fresh.
    cluster.clock.sleep(Duration::from_secs(1)).await;
    let start = cluster.clock.now();
    let asks = node.node().clone();
    let request = tokio::spawn(async move { owner(&asks).await });
    tokio::task::yield_now().await;
    let status = node.node().status().await;
    let took = cluster.clock.now() - start;
    assert!(took < lease.call_timeout / 2, "it took {took:?}");
    assert_eq!(status.leaders, before.leaders, "the status keeps the last answer");
    assert!(status.storage.answer_age_ms.unwrap() >= 1_000, "{status:?}");
    assert_eq!(request.await.unwrap(), None, "this node leads");

    // Once each failed call replaced the last answer and its age. Now the last answer must stay.
    cluster.clock.sleep(lease.call_timeout + Duration::from_secs(1)).await;
    let status = node.node().status().await;
    assert!(!status.storage.answers && status.storage.last_error.is_some(), "{status:?}");
    assert_eq!(status.leaders, before.leaders, "the status keeps the last answer");
    let age = Duration::from_millis(status.storage.answer_age_ms.unwrap());
    assert!(age > lease.call_timeout, "{age:?}");
    is_hung.store(false, Ordering::SeqCst);
    node.shutdown().await.unwrap();
}
