//! The owners of partitions: nodes take partitions, start them, and notice that one was taken from
//! them.

use std::{
    num::NonZeroU16,
    sync::{Arc, Mutex},
    time::Duration,
};

use clock::Instant;
use eventlog::WsId;
use ielections::{ElectionRow, Epoch, Incarnation, Lease, Seat, TtlStore};
use istorage::{
    AppStorageExt, Call, CallAnswer, Consistency, Error, Key, KeyspaceName, Result, SharedStorage,
    StorageDriver, StorageWrapper, WrappedDriver, Write,
};
use shop::{article, create_workspace, cud, shop};
use sysvvm::{
    AppName, OwnerRows, System,
    ownership::{
        Owner, OwnerChange, OwnerEpoch, OwnerRow, OwnerRowsView, OwnershipAnswer, OwnershipCall,
        PartitionId,
    },
};
use tck::storage::Fault;
use vvm::{AppSettings, Launched, Problem, Stage, Vvm};

use crate::cluster::{Cluster, PATIENCE, hasty, run, send};

const FAR: Instant = Instant::FAR_FUTURE;

/// The first bytes of the keys of ownership rows.
const OWNERS: [u8; 4] = [0, 0, 0, 9];

async fn system(cluster: &Cluster) -> System {
    let (driver, name) = (cluster.driver.database(), KeyspaceName::new("sysvvm").unwrap());
    System::open(driver, name, cluster.clock.clone(), FAR).await.unwrap()
}

async fn rows(owners: &OwnerRows) -> OwnerRowsView {
    owners.read(Consistency::Linearizable, FAR).await.unwrap().rows
}

fn id(partition: u16) -> PartitionId {
    PartitionId { app: 1, partition }
}

/// The epochs of all rows. Each row has an owner.
async fn epochs(owners: &OwnerRows) -> Vec<u32> {
    let epoch = |row: &OwnerRow| row.owner.map(|_| row.epoch.0).expect("a partition has no owner");
    rows(owners).await.values().map(epoch).collect()
}

/// A node that is not of these tests.
fn stranger() -> Owner {
    let advertised = "10.0.0.9:8822".parse().unwrap();
    Owner { incarnation: Incarnation(0xb), advertised, cluster: None }
}

/// Gives a partition to a stranger.
async fn give_away(owners: &OwnerRows, partition: PartitionId) -> OwnerRow {
    let from = rows(owners).await.get(&partition).copied().unwrap_or_default();
    let to = OwnerRow { epoch: OwnerEpoch(from.epoch.0 + 1), owner: Some(stranger()) };
    let change = OwnershipCall::Change(vec![OwnerChange { partition, from, to }]);
    assert_eq!(owners.answer(&change, FAR).await.unwrap(), OwnershipAnswer::Changed);
    to
}

/// Gives a partition to a stranger, although its owner has its lease.
pub(crate) async fn usurp_partition(cluster: &Cluster, partition: u16) {
    give_away(&system(cluster).await.owners(), id(partition)).await;
}

fn is_here(node: &Launched, ws: u64) -> bool {
    node.node().app("acme", "shop").unwrap().at(WsId(ws)).is_ok()
}

/// A partition has had so many owners that no epoch is left. No node takes it, and the others are
/// at work.
#[tokio::test]
async fn a_partition_without_an_epoch_left_has_no_owner() {
    let cluster = Cluster::new();
    let owners = system(&cluster).await.owners();
    let first = cluster.launch(1);
    cluster.until(&first, Stage::Leading).await;
    let soon = cluster.clock.now() + PATIENCE;
    run(&first, create_workspace(3, soon)).await;
    let done = run(&first, cud(3, article("a"), soon)).await;
    first.shutdown().await.unwrap();
    let partition = id(3);
    let from = rows(&owners).await[&partition];
    let last = OwnerRow { epoch: OwnerEpoch::MAX, owner: None };
    let change = OwnershipCall::Change(vec![OwnerChange { partition, from, to: last }]);
    assert_eq!(owners.answer(&change, FAR).await.unwrap(), OwnershipAnswer::Changed);
    let node = cluster.launch(1);
    cluster.until(&node, Stage::Leading).await;
    assert!(is_here(&node, 4) && !is_here(&node, 3));
    assert_eq!(rows(&owners).await[&partition], last);
    let reader = node.node().app("acme", "shop").unwrap().reader().unwrap();
    let record = reader.record(WsId(3), done.answer.ids[0].1).await.unwrap();
    assert_eq!(record.unwrap().version, done.version(), "its data can be read");
    node.shutdown().await.unwrap();
}

#[tokio::test]
pub(crate) async fn the_epochs_of_partitions_rise_with_each_leader() {
    let cluster = Cluster::new();
    let owners = system(&cluster).await.owners();
    for leader in 1..=3 {
        let node = cluster.launch(1);
        cluster.until(&node, Stage::Leading).await;
        assert_eq!(epochs(&owners).await, [leader; 10]);
        let soon = cluster.clock.now() + PATIENCE;
        run(&node, create_workspace(u64::from(leader) * 10, soon)).await;
        node.shutdown().await.unwrap();
    }
}

#[tokio::test]
pub(crate) async fn more_partitions_than_one_call_takes_are_taken() {
    let cluster = Cluster::new();
    let owners = system(&cluster).await.owners();
    let partitions = NonZeroU16::new(250).unwrap();
    assert!(usize::from(partitions.get()) > 2 * owners.rows_at_once());
    let mut app = AppSettings::new(AppName::new("acme", "shop").unwrap(), shop());
    app.partitions = partitions;
    let node = cluster.node_of(1, app, |_| {}).build().unwrap().launch();
    cluster.until(&node, Stage::Leading).await;
    let epochs = epochs(&owners).await;
    assert_eq!(epochs.len(), 250, "partitions have an owner");
    assert_eq!(epochs, [1; 250]);
    assert!((0..250).all(|ws| is_here(&node, ws)));
    node.shutdown().await.unwrap();
}

/// A node that took a partition from a node that lives would write beside it.
#[tokio::test]
pub(crate) async fn a_partition_is_taken_only_after_its_owner_has_lost_its_lease() {
    let cluster = Cluster::new();
    let (system, store) = (system(&cluster).await, cluster.store().await);
    let owners = system.owners();
    let lease = Lease {
        owner: stranger().advertised,
        incarnation: stranger().incarnation,
        epoch: Epoch(1),
    };
    let (seat, bytes) = (ElectionRow::Lease(Seat::new(9).unwrap()), lease.to_bytes());
    let lasts = Some(Duration::from_secs(100));
    store.insert_if_not_exists(seat, bytes.clone(), lasts, FAR).await.unwrap();
    let given = give_away(&owners, id(3)).await;

    let node = cluster.launch(1);
    let deadline = cluster.clock.now() + PATIENCE;
    while !is_here(&node, 7) {
        assert!(cluster.clock.now() < deadline, "the other partitions are not taken");
        cluster.clock.sleep(Duration::from_millis(2)).await;
    }
    cluster.clock.sleep(Duration::from_millis(1_500)).await;
    assert!(!is_here(&node, 3), "a partition was taken from an owner that lives");
    assert_eq!(node.node().stage(), Stage::Leading, "another node has the partition");
    assert_eq!(rows(&owners).await[&id(3)], given);

    store.compare_and_delete(seat, bytes, FAR).await.unwrap();
    let deadline = cluster.clock.now() + PATIENCE;
    while !is_here(&node, 3) {
        assert!(cluster.clock.now() < deadline, "the free partition is not taken");
        cluster.clock.sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(rows(&owners).await[&id(3)].epoch.0, given.epoch.0 + 1);
    node.shutdown().await.unwrap();
}

/// If another node takes a partition by mistake, the lease of its owner is still renewed. A simpler
/// version notices nothing, and at trust level 2 both nodes go on writing.
#[tokio::test]
pub(crate) async fn a_node_whose_partition_was_taken_ends_its_leadership() {
    let cluster = Cluster::new();
    let owners = system(&cluster).await.owners();
    let (node, soon) = cluster.with_workspace(cluster.node(1, hasty)).await;
    let taken = give_away(&owners, id(7)).await;
    let start = cluster.clock.now();
    let problem = cluster.clock.timeout_at(start + Duration::from_secs(5), node.problem()).await;
    let problem = problem.expect("the node does not notice that it lost a partition");
    let took = cluster.clock.now() - start;
    assert!(took < Duration::from_millis(1_500), "the node noticed only after {took:?}");
    let why = problem.to_string();
    assert!(matches!(*problem, Problem::OwnershipLost(_)), "{why}");
    assert!(why.contains("10.0.0.9:8822 took partition 7 of acme/shop in epoch 2"), "{why}");
    if is_here(&node, 7) {
        let refused = send(&node, cud(7, article("late"), soon)).await;
        assert!(refused.is_err(), "a command was done after the loss: {refused:?}");
    }
    node.shutdown().await.unwrap_err();
    assert_eq!(rows(&owners).await[&id(7)], taken);
}

#[tokio::test]
async fn a_row_that_makes_no_sense_keeps_only_its_own_partition_from_working() {
    let cluster = Cluster::new();
    let system = system(&cluster).await;
    let key = Key::new(OWNERS.to_vec(), vec![0, 0, 0, 1, 0, 3]);
    system.storage().put(key.clone(), "?".into(), FAR).await.unwrap();
    let node = cluster.launch(1);
    cluster.until(&node, Stage::Leading).await;
    assert!((0..10).all(|ws| is_here(&node, ws) == (ws != 3)));
    assert_eq!(system.storage().get_linearizable(&key, FAR).await.unwrap().unwrap(), "?");
    node.shutdown().await.unwrap();
}

/// A wrapper that makes faults in the first writes of ownership rows.
#[derive(Debug)]
struct FaultyOwners {
    inner: SharedStorage,
    faults: Arc<Mutex<Vec<Fault>>>,
}

impl StorageWrapper for FaultyOwners {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        let is_change = match &call {
            Call::Write(Write::If(pkey, _)) => pkey.starts_with(&OWNERS),
            _ => false,
        };
        let fault = is_change.then(|| self.faults.lock().unwrap().pop()).flatten();
        let unknown = || Err(Error::outcome_unknown("the answer is lost"));
        match fault {
            Some(Fault::AppliedButError) => {
                call.send(&self.inner, deadline).await?;
                unknown()
            }
            Some(Fault::NotAppliedButError) => unknown(),
            Some(Fault::Unavailable) => Err(Error::unavailable("a server hangs")),
            Some(Fault::Hang) => std::future::pending().await,
            _ => call.send(&self.inner, deadline).await,
        }
    }
}

/// A node that took the partitions again after a lost answer would raise their epochs twice. A node
/// that gave up would leave them without work.
#[tokio::test]
async fn partitions_are_taken_once_although_answers_are_lost() {
    for fault in
        [Fault::AppliedButError, Fault::NotAppliedButError, Fault::Unavailable, Fault::Hang]
    {
        let cluster = Cluster::new();
        let faults = Arc::new(Mutex::new(vec![fault, fault]));
        let (driver, left) = (Arc::clone(&cluster.driver) as Arc<dyn StorageDriver>, &faults);
        let left = Arc::clone(left);
        let driver = WrappedDriver::new(driver, move |inner| {
            Arc::new(FaultyOwners { inner, faults: Arc::clone(&left) })
        });
        let mut settings = cluster.settings(1);
        settings.lease.call_timeout = Duration::from_millis(200);
        let app = AppSettings::new(AppName::new("acme", "shop").unwrap(), shop());
        let node = Vvm::builder(Arc::new(driver), cluster.clock.clone(), settings).with_app(app);
        let node = node.build().unwrap().launch();
        cluster.until(&node, Stage::Leading).await;
        assert_eq!(epochs(&system(&cluster).await.owners()).await, [1; 10], "{fault:?}");
        let unused = faults.lock().unwrap().len();
        assert_eq!(unused, usize::from(fault == Fault::AppliedButError), "{fault:?}");
        node.shutdown().await.unwrap();
    }
}

/// A simpler version ended the leadership when a partition failed, and with it all other partitions
/// of the node.
#[tokio::test]
async fn a_partition_that_fails_starts_again_under_the_next_epoch() {
    let cluster = Cluster::new();
    let owners = system(&cluster).await.owners();
    let (node, soon) = cluster.with_workspace(cluster.node(1, |_| {})).await;
    *cluster.driver.writes.lock().unwrap() = Fault::NotAppliedButError;
    let under_way = tokio::spawn(send(&node, cud(7, article("a"), soon)));
    // The write is sent again and again, until the storage is closed.
    cluster.clock.sleep(Duration::from_millis(100)).await;
    cluster.driver.keyspace.get().unwrap().close().await;
    *cluster.driver.writes.lock().unwrap() = Fault::None;
    assert!(under_way.await.unwrap().is_err(), "the outcome is unknown");
    let deadline = cluster.clock.now() + PATIENCE;
    while epochs(&owners).await[7] == 1 {
        assert!(cluster.clock.now() < deadline, "the partition does not start again");
        cluster.clock.sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(epochs(&owners).await, [1, 1, 1, 1, 1, 1, 1, 2, 1, 1]);
    assert!(node.node().status().await.lead.is_some(), "the node goes on leading");
    // The later epoch fences the write without an answer.
    node.shutdown().await.unwrap();
}
