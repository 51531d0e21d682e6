//! What a node says about the leaders while its storage does not answer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ielections::Timing;
use istorage::{Fault, Faulty, Op, StorageDriver, WrappedDriver};
use sysvvm::AppName;
use vvm::{AppSettings, Settings, Stage, Vvm};
use vvm_tests::commands::shop;

use crate::cluster::Cluster;

/// A request asked the storage for the leaders and held a lock until the storage answered. `/status` waited for the
/// lock, so a storage that hung made the admin endpoint hang.
#[tokio::test]
async fn the_status_does_not_wait_for_a_storage_that_hangs() {
    let cluster = Cluster::new();
    let is_hung = Arc::new(AtomicBool::new(false));
    let (hangs, clock) = (Arc::clone(&is_hung), cluster.clock.clone());
    let driver = Arc::clone(&cluster.driver) as Arc<dyn StorageDriver>;
    let driver = WrappedDriver::new(driver, move |storage| {
        let hangs = Arc::clone(&hangs);
        let script = move |op| match op {
            Op::Read if hangs.load(Ordering::SeqCst) => Fault::Hang,
            _ => Fault::None,
        };
        Arc::new(Faulty::scripted(storage, clock.clone(), script))
    });
    let lease = Timing::of(Duration::from_secs(200));
    let settings = Settings { lease, ..cluster.settings(1) };
    let app = AppSettings::new(AppName::new("acme", "shop").unwrap(), shop());
    let node = Vvm::builder(Arc::new(driver), cluster.clock.clone(), settings).with_app(app);
    let node = node.build().unwrap().launch();
    cluster.until(&node, Stage::Leading).await;
    let before = node.node().status().await;
    assert_eq!(before.leaders[&1], node.node().advertised());
    assert!(before.storage.answers);

    is_hung.store(true, Ordering::SeqCst);
    // The answer that is known is not fresh any more.
    cluster.clock.sleep(Duration::from_secs(1)).await;
    let start = cluster.clock.now();
    let asks = node.node().clone();
    let request = tokio::spawn(async move { asks.leader_of(0).await });
    tokio::task::yield_now().await;
    let status = node.node().status().await;
    let took = cluster.clock.now() - start;
    assert!(took < lease.call_timeout / 2, "it took {took:?}");
    assert_eq!(status.leaders, before.leaders, "the last answer is told");
    assert!(status.storage.answer_age_ms.unwrap() >= 1_000, "{status:?}");
    assert_eq!(request.await.unwrap(), None, "this node leads");

    // Each call that failed took the place of the last answer, and of its age.
    cluster.clock.sleep(lease.call_timeout + Duration::from_secs(1)).await;
    let status = node.node().status().await;
    assert!(!status.storage.answers && status.storage.trouble.is_some(), "{status:?}");
    assert_eq!(status.leaders, before.leaders, "the last answer is told");
    let age = Duration::from_millis(status.storage.answer_age_ms.unwrap());
    assert!(age > lease.call_timeout, "{age:?}");
    is_hung.store(false, Ordering::SeqCst);
    node.shutdown().await.unwrap();
}
