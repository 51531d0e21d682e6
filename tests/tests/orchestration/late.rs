//! The lease at trust level 2, on a storage where writes may land late.

use std::{sync::Arc, time::Duration};

use eventlog::TrustLevel;
use ielections::Timing;
use istorage::{Capabilities, SharedStorage, StorageDriver, WrappedDriver};
use sysvvm::AppName;
use vvm::{AppSettings, Launched, Problem, Settings, Stage, Vvm};
use vvm_tests::{
    between::{Between, Through},
    commands::shop,
};

use crate::cluster::{Cluster, PATIENCE};

/// How long after it was sent a write may land.
const LATE_WRITE: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct Late(SharedStorage);

impl Between for Late {
    fn inner(&self) -> &SharedStorage {
        &self.0
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { late_write: LATE_WRITE, ..self.0.capabilities() }
    }
}

fn launch(cluster: &Cluster, level: TrustLevel, lease: Timing) -> Launched {
    let driver = Arc::clone(&cluster.driver) as Arc<dyn StorageDriver>;
    let driver = WrappedDriver::new(driver, |storage| Through::new(Late(storage)));
    let app = AppSettings::new(AppName::new("acme", "shop").unwrap(), shop());
    let settings = Settings { lease, ..cluster.settings(1) };
    let node = Vvm::builder(Arc::new(driver), cluster.clock.clone(), settings);
    node.with_app(AppSettings { level, ..app }).build().unwrap().launch()
}

/// Nobody asked the driver. A lease of 20 s was taken at level 2 although a write could land 30 s
/// after it was sent: it landed after the next leader had recovered the log, and left a record with
/// a state that no event has.
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
