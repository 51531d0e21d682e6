//! The change of a trust level between two starts of the nodes.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use eventlog::{Deployment, DeploymentError, Epoch, LevelChange, RecordId, TrustLevel, WsId};
use ielections::Timing;
use istorage::{Capabilities, StorageDriver, WrappedDriver};
use shop::{article, cud, text, update};
use sysvvm::{AppName, System};
use tokio::sync::Notify;
use vvm::{
    ChangeLevelError, ChangedLevel, InvalidNodeSettings, Launched, LevelStep, NodeSettings,
    Problem, Stage, change_level,
};

use crate::{
    cluster::{Cluster, PATIENCE, hasty, run},
    lease_times::OtherCapabilities,
};

use TrustLevel::{One, Two, Zero};

fn app() -> AppName {
    AppName::new("acme", "shop").unwrap()
}

/// Changes the level as a command does that has the settings of node 9.
async fn change(
    cluster: &Cluster,
    to: TrustLevel,
    settings: impl FnOnce(&mut NodeSettings),
) -> Result<ChangedLevel, ChangeLevelError> {
    let mut own = cluster.settings(9);
    settings(&mut own);
    let driver = Arc::clone(&cluster.driver) as Arc<dyn StorageDriver>;
    change_on(driver, cluster, to, &own, |_| {}).await
}

async fn change_on(
    driver: Arc<dyn StorageDriver>,
    cluster: &Cluster,
    to: TrustLevel,
    settings: &NodeSettings,
    tell: impl Fn(LevelStep),
) -> Result<ChangedLevel, ChangeLevelError> {
    change_level(driver, cluster.clock.clone(), settings, &app(), to, tell).await
}

/// A driver whose writes may land a second after they were sent.
fn with_late_writes(cluster: &Cluster) -> Arc<dyn StorageDriver> {
    let late = |own| Capabilities { late_write: Duration::from_secs(1), ..own };
    let driver = Arc::clone(&cluster.driver) as Arc<dyn StorageDriver>;
    let driver =
        WrappedDriver::new(driver, move |storage| Arc::new(OtherCapabilities(storage, late)));
    Arc::new(driver)
}

async fn stored(cluster: &Cluster) -> Deployment {
    let storage = cluster.driver.keyspace.get().unwrap();
    Deployment::stored(storage, cluster.clock.now() + PATIENCE).await.unwrap().unwrap()
}

async fn level_of(node: &Launched) -> String {
    node.node().status().await.apps[0].level.clone()
}

async fn name_of(node: &Launched, id: RecordId) -> eventlog::Value {
    let here = node.node().app("acme", "shop").unwrap().at(WsId(7)).unwrap();
    let stored = here.record(WsId(7), id).await.unwrap().unwrap();
    stored.record.fields.get("name").unwrap().clone()
}

#[tokio::test]
async fn the_next_nodes_work_at_the_new_level_on_the_rows_of_each_level() {
    let cluster = Cluster::new();
    let (node, soon) = cluster.with_workspace(cluster.node(1, |_| {})).await;
    let made = run(&node, cud(7, article("made at 0"), soon)).await.answer.ids[0].1;
    node.shutdown().await.unwrap();
    let (mut from, mut last, mut strays) = (Zero, 0, Epoch(0));
    for to in [One, Two, Zero, Two, One, Zero] {
        let changed = change(&cluster, to, |_| {}).await.unwrap();
        let epoch = changed.epoch.unwrap();
        assert!(changed.from == from && epoch.0 > last, "{changed:?}");
        strays = if from == Two { epoch } else { strays };
        assert_eq!(changed.stray_before, strays, "a command that is repeated knows it, too");
        (from, last) = (to, epoch.0);
        let again = change(&cluster, to, |_| {}).await.unwrap();
        assert_eq!(again, ChangedLevel { from: to, epoch: None, ..changed });
        // The settings of the node still have level 0.
        let node = cluster.launch(1);
        cluster.until(&node, Stage::Leading).await;
        assert_eq!(level_of(&node).await, to.to_string());
        for id in [made, run(&node, cud(7, article("new"), soon)).await.answer.ids[0].1] {
            let called = format!("changed at {to}");
            run(&node, cud(7, vec![update(id, None, &called)], soon)).await;
            assert_eq!(name_of(&node, id).await, text(called), "in the row that was made before");
        }
        node.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn the_level_does_not_change_while_a_node_works() {
    let cluster = Cluster::new();
    let two_seats = |settings: &mut NodeSettings| {
        settings.seats = NonZeroU32::new(2).unwrap();
        hasty(settings);
    };
    let node = cluster.node(1, two_seats).build().unwrap().launch();
    cluster.until(&node, Stage::Leading).await;
    let refused = change(&cluster, One, two_seats).await.unwrap_err();
    let at = node.node().advertised();
    assert!(
        matches!(refused, ChangeLevelError::SeatHeld { owner, .. } if owner == at),
        "{refused:?}"
    );
    assert!(refused.to_string().contains("stop all nodes"), "{refused}");
    assert_eq!(stored(&cluster).await.level, Zero);
    let other_seats = change(&cluster, One, |_| {}).await.unwrap_err();
    let sysvvm::Error::OtherSeats { stored: 2, wanted: 1 } = (match other_seats {
        ChangeLevelError::System(error) => error,
        other => panic!("{other:?}"),
    }) else {
        panic!("another error")
    };
    node.shutdown().await.unwrap();
    // The seats are free again.
    assert_eq!(change(&cluster, One, two_seats).await.unwrap().from, Zero);
}

#[tokio::test]
async fn the_lease_of_a_killed_node_is_waited_for() {
    let cluster = Cluster::new();
    let node = cluster.launch_hasty(1);
    cluster.until(&node, Stage::Leading).await;
    node.shutdown().await.unwrap();
    let store = cluster.store().await;
    let row = ielections::ElectionRow::Lease(ielections::Seat::FIRST);
    let dead = ielections::Lease {
        owner: "127.0.0.1:1".parse().unwrap(),
        incarnation: ielections::Incarnation(1),
        epoch: Epoch(1),
    };
    let lasts = Some(Duration::from_secs(2));
    use ielections::TtlStore;
    let soon = cluster.clock.now() + PATIENCE;
    let _ = store.insert_if_not_exists(row, dead.to_bytes(), lasts, soon).await.unwrap();
    let before = cluster.clock.now();
    change(&cluster, One, hasty).await.unwrap();
    assert!(cluster.clock.now() - before >= Duration::from_millis(1_900));
    assert_eq!(stored(&cluster).await.level, One);
}

/// The lease of such a node does not last until late writes have landed.
#[tokio::test]
async fn a_node_that_waited_for_a_seat_while_the_level_became_2_starts_again() {
    let cluster = Cluster::new();
    let node = cluster.launch(1);
    cluster.until(&node, Stage::Leading).await;
    node.shutdown().await.unwrap();
    let late = with_late_writes(&cluster);
    let holds = Notify::new();
    let tell = |step| {
        assert_eq!(step, LevelStep::WaitsForLateWrites(Duration::from_secs(1)));
        holds.notify_one();
    };
    let settings = cluster.settings(9);
    let changing = change_on(Arc::clone(&late), &cluster, Two, &settings, tell);
    let waiting = async {
        holds.notified().await;
        let builder =
            vvm::Vvm::builder(Arc::clone(&late), cluster.clock.clone(), cluster.settings(2));
        let app = vvm::AppSettings::new(app(), shop::shop());
        builder.with_app(app).build().unwrap().launch()
    };
    let (changed, waited) = tokio::join!(changing, waiting);
    changed.unwrap();
    let problem = cluster.clock.timeout_at(cluster.clock.now() + PATIENCE, waited.problem()).await;
    let problem = problem.unwrap();
    assert!(matches!(&*problem, Problem::LevelChanged(name) if *name == app()), "{problem}");
    waited.shutdown().await.unwrap_err();
    // A node that starts now chooses its lease for level 2.
    let builder = vvm::Vvm::builder(late, cluster.clock.clone(), cluster.settings(2));
    let app = vvm::AppSettings::new(app(), shop::shop());
    let node = builder.with_app(app).build().unwrap().launch();
    cluster.until(&node, Stage::Leading).await;
    assert_eq!(level_of(&node).await, "2");
    node.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_level_stays_if_the_leases_are_too_short_or_lost() {
    let cluster = Cluster::new();
    let node = cluster.launch(1);
    cluster.until(&node, Stage::Leading).await;
    node.shutdown().await.unwrap();
    let late = with_late_writes(&cluster);
    let mut settings = cluster.settings(9);
    hasty(&mut settings);
    let short = change_on(Arc::clone(&late), &cluster, Two, &settings, |_| {}).await.unwrap_err();
    let is_short =
        matches!(short, ChangeLevelError::Settings(InvalidNodeSettings::ShortLease { .. }));
    assert!(is_short, "{short:?}");

    let holds = Notify::new();
    let long = Timing::of(Timing::shortest(Duration::from_secs(1)).unwrap().duration);
    settings.lease = Timing { renew_every: Duration::from_millis(200), ..long };
    let changing = change_on(late, &cluster, Two, &settings, |_| holds.notify_one());
    let usurping = async {
        holds.notified().await;
        cluster.usurp(1).await;
    };
    let (lost, ()) = tokio::join!(changing, usurping);
    let lost = lost.unwrap_err();
    assert!(matches!(lost, ChangeLevelError::LeaseLost(_)), "{lost:?}");
    assert_eq!(stored(&cluster).await.level, Zero);
}

/// A command was killed between its two writes, and its second write may still be under way.
#[tokio::test]
async fn a_node_cancels_a_change_that_has_not_finished() {
    let cluster = Cluster::new();
    let node = cluster.launch(1);
    cluster.until(&node, Stage::Leading).await;
    node.shutdown().await.unwrap();
    let storage = Arc::clone(cluster.driver.keyspace.get().unwrap());
    let (clock, soon) = (&cluster.clock, cluster.clock.now() + PATIENCE);
    let killed = LevelChange::begin(Two, &storage, clock, soon).await.unwrap();
    assert_eq!(stored(&cluster).await.changing_to(), Some(Two));
    let node = cluster.launch(1);
    cluster.until(&node, Stage::Leading).await;
    assert_eq!(level_of(&node).await, "0");
    let late = killed.finish(Epoch(1_000), &storage, clock, soon).await.unwrap_err();
    assert!(matches!(late, DeploymentError::ChangeCancelled(Zero)), "{late:?}");
    node.shutdown().await.unwrap();
    let stored = stored(&cluster).await;
    assert_eq!((stored.level, stored.changing_to()), (Zero, None));
}

/// A node that the command did not see has taken a partition while the level was changed.
#[tokio::test]
async fn the_level_stays_if_a_partition_has_an_owner() {
    use sysvvm::ownership::{Owner, OwnerChange, OwnerEpoch, OwnerRow, OwnershipCall, PartitionId};
    let cluster = Cluster::new();
    let node = cluster.launch(1);
    cluster.until(&node, Stage::Leading).await;
    node.shutdown().await.unwrap();
    let (driver, clock) = (Arc::clone(&cluster.driver) as _, cluster.clock.clone());
    let (name, soon) = (cluster.settings(1).system, clock.now() + PATIENCE);
    let system = System::open(driver, name, clock.clone(), soon).await.unwrap();
    let entry = system.open_app(&app(), soon).await.unwrap().entry;
    let partition = PartitionId { app: entry.number.get(), partition: 3 };
    let owners = system.owners();
    let there = owners.read(istorage::Consistency::Linearizable, soon).await.unwrap();
    let from = there.rows[&partition];
    // Seat 2 does not exist for the command, which takes seat 1.
    use ielections::TtlStore;
    let incarnation = ielections::Incarnation(77);
    let advertised = "127.0.0.1:77".parse().unwrap();
    let lease = ielections::Lease { owner: advertised, incarnation, epoch: Epoch(1) };
    let row = ielections::ElectionRow::Lease(ielections::Seat::new(2).unwrap());
    let ttl = Some(Duration::from_secs(60));
    let store = cluster.store().await;
    let _ = store.insert_if_not_exists(row, lease.to_bytes(), ttl, soon).await.unwrap();
    let owner = Some(Owner { incarnation, advertised, cluster: None });
    let to = OwnerRow { epoch: OwnerEpoch(from.epoch.0 + 1), owner };
    let take = OwnershipCall::Change(vec![OwnerChange { partition, from, to }]);
    owners.answer(&take, soon).await.unwrap();
    let owned = change(&cluster, One, |_| {}).await.unwrap_err();
    let is_owned =
        matches!(owned, ChangeLevelError::System(sysvvm::Error::Owned { partition: 3, .. }));
    assert!(is_owned, "{owned:?}");
    assert_eq!(stored(&cluster).await.level, Zero);
}
