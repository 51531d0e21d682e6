//! Leases on storages with late writes, and on storages where each node watches leases.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use clock::Instant;
use eventlog::TrustLevel;
use ielections::{ConditionalOutcome, ElectionRow, Seat, Timing, TtlStore};
use istorage::{Capabilities, SharedStorage, StorageDriver, StorageWrapper, WrappedDriver};
use shop::shop;
use sysvvm::AppName;
use vvm::{AppSettings, Builder, Launched, NodeSettings, Problem, Stage, Vvm};

use crate::cluster::{Cluster, PATIENCE, hasty};

/// The longest time from the sending of a write to its landing.
const LATE_WRITE: Duration = Duration::from_secs(30);

/// A storage that reports other capabilities.
#[derive(Debug)]
pub(crate) struct OtherCapabilities(
    pub(crate) SharedStorage,
    pub(crate) fn(Capabilities) -> Capabilities,
);

impl StorageWrapper for OtherCapabilities {
    fn inner(&self) -> &SharedStorage {
        &self.0
    }

    fn capabilities(&self) -> Capabilities {
        self.1(self.0.capabilities())
    }
}

/// A node on a driver with storages that report other capabilities.
fn node(
    cluster: &Cluster,
    settings: NodeSettings,
    says: fn(Capabilities) -> Capabilities,
) -> Builder {
    let driver = Arc::clone(&cluster.driver) as Arc<dyn StorageDriver>;
    let driver =
        WrappedDriver::new(driver, move |storage| Arc::new(OtherCapabilities(storage, says)));
    Vvm::builder(Arc::new(driver), cluster.clock.clone(), settings)
}

fn app() -> AppSettings {
    AppSettings::new(AppName::new("acme", "shop").unwrap(), shop())
}

fn launch(cluster: &Cluster, level: TrustLevel, lease: Timing) -> Launched {
    let settings = NodeSettings { lease, ..cluster.settings(1) };
    let late = |own| Capabilities { late_write: LATE_WRITE, ..own };
    let node = node(cluster, settings, late);
    node.with_app(AppSettings { level, ..app() }).build().unwrap().launch()
}

/// A node that watches leases waits for the whole lease of a dead leader, counted from its first
/// look. A node with a shorter `acquire_within` gave up before, and a supervisor started it again.
/// The next node watched the lease anew, and so on: no node ever led.
#[tokio::test]
async fn a_node_that_watches_leases_does_not_give_up_before_it_may_see_one_expire() {
    let cluster = Cluster::new();
    let row = ElectionRow::Lease(Seat::new(1).unwrap());
    let (value, lasts) = (Bytes::from("of a dead leader"), Some(Duration::from_secs(2)));
    let store = cluster.store().await;
    let written = store.insert_if_not_exists(row, value, lasts, Instant::FAR_FUTURE);
    assert!(matches!(written.await.unwrap(), ConditionalOutcome::Done));
    let mut settings = cluster.settings(1);
    hasty(&mut settings);
    settings.acquire_within = Some(Duration::from_millis(300));
    let watched = |own| Capabilities { expiry_is_watched: true, ..own };
    let node = node(&cluster, settings, watched).with_app(app()).build().unwrap().launch();
    let soon = cluster.clock.now() + PATIENCE;
    node.ready(soon).await.unwrap();
    node.shutdown().await.unwrap();
}

/// The node did not ask the driver for the delay of late writes. At level 2 the node took a lease
/// of 20 s, although a write could land 30 s after it was sent. Such a write landed after the next
/// leader had recovered the log, and left a record with a state that no event has.
#[tokio::test]
async fn at_level_2_a_node_does_not_lead_with_a_lease_that_is_too_short_for_late_writes() {
    let cluster = Cluster::new();
    let node = launch(&cluster, TrustLevel::Two, Timing::default());
    let soon = cluster.clock.now() + PATIENCE;
    let problem = cluster.clock.timeout_at(soon, node.problem()).await;
    let problem = problem.expect("a lease of 20 s is refused");
    let Problem::Refused(why) = &*problem else { panic!("{problem}") };
    assert!(why.contains("a lease of 134 s or more"), "{why}");
    node.shutdown().await.unwrap_err();
    assert!(cluster.lease(1).await.is_none());

    let lease = Timing::of(Timing::shortest(LATE_WRITE).unwrap().duration);
    for (level, lease) in [(TrustLevel::Zero, Timing::default()), (TrustLevel::Two, lease)] {
        let cluster = Cluster::new();
        let node = launch(&cluster, level, lease);
        cluster.until(&node, Stage::Leading).await;
        node.shutdown().await.unwrap();
    }
}

/// No suite failed when a node that stops waited for ever for the release of its lease.
#[tokio::test]
async fn a_lease_that_cannot_be_deleted_in_time_is_left_to_expire() {
    let cluster = Cluster::new();
    let node = cluster.node(1, |settings| settings.stop_within = Duration::from_secs(4));
    let node = node.build().unwrap().launch();
    cluster.until(&node, Stage::Leading).await;
    cluster.driver.keeps_leases.store(true, Ordering::SeqCst);
    let start = cluster.clock.now();
    node.shutdown().await.unwrap();
    let took = cluster.clock.now() - start;
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert!(cluster.lease(1).await.is_some());
}
