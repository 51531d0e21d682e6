//! Tests on a disk that fails, fills up or stands still on command.

mod answered;
mod disk;
mod folders;
mod full_disk;
pub(crate) mod logs;
mod syncs;
mod unreadable;

use std::{path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use clock::{Clock, Instant, ManualClock};
use futures::{
    FutureExt, StreamExt, TryFutureExt, TryStreamExt, future::join_all, stream::FuturesUnordered,
};
use istorage::{
    AppStorageExt, AtomicBatch, Conditional, Conflict, Consistency, ErrorKind, Key, KeyspaceName,
    Order, OrderedPut, Outcome, Put, Result, SharedStorage, StorageDriver,
};

use self::disk::{Disk, FailingDisk, Switch};
use crate::{RedbConfig, RedbDriver, file::StorageFile, log::LogSizes};

struct Node {
    folder: tempfile::TempDir,
    path: PathBuf,
    switch: Switch,
    clock: ManualClock,
    driver: RedbDriver,
    storage: SharedStorage,
}

impl Node {
    async fn start() -> Node {
        Node::start_on(tempfile::tempdir().unwrap(), Switch::default()).await
    }

    async fn start_on(folder: tempfile::TempDir, switch: Switch) -> Node {
        let config = RedbConfig::new(folder.path().join("node.redb"));
        Node::start_with(folder, switch, config).await
    }

    async fn start_with(folder: tempfile::TempDir, switch: Switch, config: RedbConfig) -> Node {
        Node::start_sized(folder, switch, config, LogSizes::default()).await
    }

    async fn start_sized(
        folder: tempfile::TempDir,
        switch: Switch,
        config: RedbConfig,
        sizes: LogSizes,
    ) -> Node {
        let path = config.path.clone();
        // Lines are kept from this call on.
        drop(logs::of(&path));
        let clock = ManualClock::new(0);
        let disk = Arc::new(FailingDisk(switch.clone()));
        let driver = RedbDriver::open_on(config, clock.clock(), disk, sizes);
        let driver = driver.await.unwrap();
        let name = KeyspaceName::new("tests").unwrap();
        driver.create(&name, Instant::FAR_FUTURE).await.unwrap();
        let storage = driver.open(&name, Instant::FAR_FUTURE).await.unwrap().unwrap();
        Node { folder, path, switch, clock, driver, storage }
    }

    /// Opens the file with another driver, which remembers nothing.
    async fn restart(&mut self) {
        self.restart_with(RedbConfig::new(self.path.clone())).await;
    }

    async fn restart_with(&mut self, config: RedbConfig) {
        self.driver.close().await;
        let folder = std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap());
        *self = Node::start_with(folder, self.switch.clone(), config).await;
    }

    /// Tries to open the file of this node, which is closed, with another driver.
    async fn opened(&self) -> Result<RedbDriver> {
        let (config, clock) = (RedbConfig::new(self.path.clone()), self.clock.clock());
        let disk = Arc::new(FailingDisk(self.switch.clone()));
        RedbDriver::open_on(config, clock, disk, LogSizes::default()).await
    }

    /// Closes the node while its disk fails, and opens the file again when the disk does `disk`.
    async fn restart_on(&mut self, disk: Disk) {
        self.driver.close().await;
        self.switch.set(disk);
        self.restart().await;
    }

    fn now(&self) -> Instant {
        self.clock.clock().now()
    }

    async fn put(&self, row: &'static str, value: &'static str) -> Result<()> {
        self.storage.put(key(row), Bytes::from(value), Instant::FAR_FUTURE).await
    }

    async fn get(&self, row: &'static str) -> Result<Option<Bytes>> {
        self.storage.get(&key(row), Consistency::Plain, Instant::FAR_FUTURE).await
    }

    async fn insert(&self, row: &'static str, value: &'static str) -> Result<Outcome> {
        self.storage
            .insert_if_not_exists(key(row), Bytes::from(value), None, Instant::FAR_FUTURE)
            .await
    }

    /// Runs `calls` as one group: they wait together while a commit stands still, and then go on.
    async fn as_one_group<T>(&self, calls: Vec<impl Future<Output = T>>) -> Vec<T> {
        self.switch.set(Disk::StandsStill);
        let mut first = Box::pin(self.put("the commit that stands still", ""));
        assert!((&mut first).now_or_never().is_none());
        self.switch.wait_for_sync();
        let mut calls: Vec<_> = calls.into_iter().map(Box::pin).collect();
        for call in &mut calls {
            // The first poll sends the request.
            assert!(call.now_or_never().is_none());
        }
        self.switch.set(Disk::Works);
        first.await.unwrap();
        join_all(calls).await
    }
}

fn key(row: &'static str) -> Key {
    Key::new("p", row)
}

/// The lease was renewed only after all writes that were sent before it, here 80 MiB.
#[tokio::test]
async fn a_lease_is_written_before_large_writes_that_were_sent_before() {
    let node = Node::start().await;
    node.switch.set(Disk::StandsStill);
    let large = async |n: u8| {
        let key = Key { pkey: Bytes::from("p"), ccols: vec![n].into() };
        node.storage.put(key, vec![n; 8 << 20].into(), Instant::FAR_FUTURE).await.map(|()| n)
    };
    let mut answers: FuturesUnordered<_> = (0..10).map(|n| large(n).boxed_local()).collect();
    assert!(answers.next().now_or_never().is_none(), "all are sent");
    node.switch.wait_for_sync();
    answers.push(node.insert("seat", "node").map_ok(|_| u8::MAX).boxed_local());
    assert!(answers.next().now_or_never().is_none(), "the lease is sent");
    node.switch.set(Disk::Works);
    let order: Vec<u8> = answers.try_collect().await.unwrap();
    assert_eq!(order.len(), 11);
    let place = order.iter().position(|n| *n == u8::MAX).unwrap();
    assert!(place <= 1, "{order:?}: one write was under way, and the lease is next");
}

#[tokio::test]
async fn waiting_requests_share_one_commit() {
    let node = Node::start().await;
    let before = node.switch.syncs();
    node.put("alone", "1").await.unwrap();
    let one_commit = node.switch.syncs() - before;
    let rows = ["a", "b", "c", "d", "e", "f"];
    let before = node.switch.syncs();
    let answers = node.as_one_group(rows.iter().map(|row| node.put(row, "1")).collect()).await;
    assert!(answers.into_iter().all(|answer| answer.is_ok()));
    assert_eq!(
        node.switch.syncs() - before,
        2 * one_commit,
        "one that stood still, one for the six"
    );
}

#[tokio::test]
async fn a_failed_condition_changes_no_other_request_of_the_group() {
    let node = Node::start().await;
    assert!(node.insert("taken", "1").await.unwrap().is_applied());
    let insert = |rows: &[&'static str]| {
        let insert = |row: &&'static str| Conditional::Insert {
            ccols: Bytes::from(*row),
            value: Bytes::from("2"),
            ttl: None,
        };
        node.storage.write_if(
            Bytes::from("p"),
            rows.iter().map(insert).collect(),
            Instant::FAR_FUTURE,
        )
    };
    let calls = vec![insert(&["a"]), insert(&["b", "taken"]), insert(&["c"]), insert(&["a", "d"])];
    let outcomes = node.as_one_group(calls).await;
    let applied: Vec<bool> =
        outcomes.iter().map(|outcome| outcome.as_ref().unwrap().is_applied()).collect();
    assert_eq!(
        applied,
        [true, false, true, false],
        "the last one must see what the first one wrote"
    );
    for (row, there) in [("a", true), ("b", false), ("c", true), ("d", false)] {
        assert_eq!(node.get(row).await.unwrap().is_some(), there, "row {row}");
    }
}

#[tokio::test]
async fn a_write_of_another_kind_changes_no_other_request_of_the_group() {
    let node = Node::start().await;
    assert!(node.insert("conditional", "1").await.unwrap().is_applied());
    let put = |rows: &[&'static str]| {
        let put = |row: &&'static str| Put { key: key(row), value: Bytes::from("2") };
        node.storage.put_batch(rows.iter().map(put).collect(), Instant::FAR_FUTURE)
    };
    let answers =
        node.as_one_group(vec![put(&["a"]), put(&["b", "conditional", "c"]), put(&["d"])]).await;
    assert!(answers[0].is_ok() && answers[2].is_ok());
    assert_eq!(answers[1].as_ref().unwrap_err().kind(), ErrorKind::Invalid);
    for (row, value) in
        [("a", Some("2")), ("b", None), ("conditional", Some("1")), ("c", None), ("d", Some("2"))]
    {
        assert_eq!(node.get(row).await.unwrap(), value.map(Bytes::from), "row {row}");
    }
}

#[tokio::test]
async fn a_plain_write_of_another_kind_is_refused_and_an_ordered_one_is_hidden() {
    let node = Node::start().await;
    let ordered = |row, order, value: &'static str| OrderedPut {
        key: key(row),
        value: Bytes::from(value),
        order: Order::new(order).unwrap(),
        ttl: None,
    };
    node.put("plain", "1").await.unwrap();
    assert!(node.insert("conditional", "1").await.unwrap().is_applied());
    node.storage.put_ordered(vec![ordered("ordered", 5, "1")], Instant::FAR_FUTURE).await.unwrap();

    let orders = |row, order, value| {
        let rows = vec![ordered("fresh", 1, "x"), ordered(row, order, value)];
        node.storage
            .put_ordered(rows, Instant::FAR_FUTURE)
            .map(|answer| answer.map(|()| Outcome::Applied))
    };
    let atomic = |row| {
        let batch = AtomicBatch {
            puts: vec![Put { key: key("fresh"), value: Bytes::from("x") }],
            conditionals: vec![(
                Bytes::from("p"),
                Conditional::Insert { ccols: Bytes::from(row), value: Bytes::new(), ttl: None },
            )],
            ordered: vec![],
        };
        node.storage.write_atomic(batch, Instant::FAR_FUTURE)
    };
    let refused = vec![
        node.put("conditional", "2").await.map(|()| Outcome::Applied),
        node.put("ordered", "2").await.map(|()| Outcome::Applied),
        orders("ordered", 5, "equal order, other bytes").await,
    ];
    for (at, answer) in refused.into_iter().enumerate() {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Invalid, "call {at}");
    }
    // A conditional write compares the value of a row of any kind. A row of another program was in
    // the place of such a write, and the answer did not tell that the row existed.
    for answer in [
        node.insert("plain", "2").await,
        node.insert("ordered", "2").await,
        atomic("plain").await,
        atomic("ordered").await,
    ] {
        let conflict = Conflict { op: 0, actual: Some(Bytes::from("1")) };
        assert_eq!(answer.unwrap(), Outcome::NotApplied(vec![conflict]));
    }
    for row in ["plain", "conditional", "ordered"] {
        assert_eq!(node.get(row).await.unwrap(), Some(Bytes::from("1")));
    }
    assert_eq!(node.get("fresh").await.unwrap(), None);
    for row in ["plain", "conditional"] {
        assert!(orders(row, 9, "2").await.unwrap().is_applied());
        assert_eq!(node.get(row).await.unwrap(), Some(Bytes::from("1")), "hidden by {row}");
    }
    // The same bytes with the same order are a success: the caller sent them again.
    node.storage.put_ordered(vec![ordered("ordered", 5, "1")], Instant::FAR_FUTURE).await.unwrap();
}

#[tokio::test]
async fn reads_do_not_wait_for_a_commit_and_do_not_see_it_early() {
    let node = Node::start().await;
    node.put("a", "old").await.unwrap();
    node.switch.set(Disk::StandsStill);
    let mut put = Box::pin(node.put("a", "new"));
    assert!((&mut put).now_or_never().is_none());
    node.switch.wait_for_sync();
    assert_eq!(node.get("a").await.unwrap(), Some(Bytes::from("old")));
    let rows = node.storage.read(
        Bytes::from("p"),
        istorage::Range::all(),
        Consistency::Plain,
        Duration::MAX,
    );
    assert_eq!(rows.count().await, 1);
    node.switch.set(Disk::Works);
    put.await.unwrap();
    assert_eq!(node.get("a").await.unwrap(), Some(Bytes::from("new")));
}

/// After a failed sync, the driver opened the file again and went on. But the system shows data
/// that it could not write, and never writes that data again. Only a new process trusts no page
/// that the system has in memory.
#[tokio::test]
async fn after_a_sync_that_failed_nothing_is_written_until_the_file_is_opened_by_another_driver() {
    let mut node = Node::start().await;
    node.put("acknowledged", "1").await.unwrap();
    node.switch.set(Disk::FailsToSync);
    let (one, two) = tokio::join!(node.insert("a", "1"), node.put("b", "1"));
    for answer in [one.map(drop), two] {
        let error = answer.unwrap_err();
        let unknown = error.kind() == ErrorKind::OutcomeUnknown;
        // The second call may have come when the file was closed.
        assert!(unknown || error.kind() == ErrorKind::Unavailable, "{error:?}");
    }
    let why = node.driver.failed().now_or_never().expect("the driver says that it cannot go on");
    assert_eq!(why.kind(), ErrorKind::Unavailable);
    node.switch.set(Disk::Works);
    let refused = [node.put("c", "1").await, node.get("acknowledged").await.map(drop)];
    for answer in refused {
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        let text = error.to_string();
        assert!(text.contains("a sync of the storage file"), "{text}");
        assert!(text.contains("or of its log failed"), "{text}");
    }
    let [line] = &logs::of(&node.path)[..] else { panic!("{:?}", logs::of(&node.path)) };
    assert!(line.contains("the node must be restarted"), "{line}");

    node.restart().await;
    assert_eq!(node.get("acknowledged").await.unwrap(), Some(Bytes::from("1")));
    // A write with an unknown outcome is settled: the test sends it again.
    let there = node.get("a").await.unwrap().is_some();
    assert_eq!(node.insert("a", "2").await.unwrap().is_applied(), !there);
}

/// A panic ended the thread that writes. The waiting requests were never answered, and nothing more
/// was written.
#[tokio::test]
async fn a_panic_in_a_commit_loses_nothing() {
    let mut node = Node::start().await;
    node.put("before", "1").await.unwrap();
    let name = KeyspaceName::new("durable").unwrap();
    node.switch.set(Disk::PanicsOnce);
    let error = node.driver.create(&name, Instant::FAR_FUTURE).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(node.driver.open(&name, Instant::FAR_FUTURE).await.unwrap().is_none());
    for row in ["a", "b"] {
        node.put(row, "1").await.unwrap();
    }
    node.driver.create(&name, Instant::FAR_FUTURE).await.unwrap();
    node.restart().await;
    for row in ["before", "a", "b"] {
        assert_eq!(node.get(row).await.unwrap(), Some(Bytes::from("1")), "row {row}");
    }
}

#[tokio::test]
async fn a_request_that_is_dropped_or_late_before_its_transaction_is_never_written() {
    let node = Node::start().await;
    node.switch.set(Disk::StandsStill);
    let mut first = Box::pin(node.put("first", "1"));
    assert!((&mut first).now_or_never().is_none());
    node.switch.wait_for_sync();

    let mut dropped = Box::pin(node.put("dropped", "1"));
    assert!((&mut dropped).now_or_never().is_none());
    let deadline = node.now() + Duration::from_secs(5);
    let mut late = Box::pin(node.storage.put(key("late"), Bytes::new(), deadline));
    assert!((&mut late).now_or_never().is_none());
    drop(dropped);
    node.clock.advance(Duration::from_secs(5));
    node.switch.set(Disk::Works);

    // Both calls were in the queue before this one.
    node.put("last", "1").await.unwrap();
    first.await.unwrap();
    let error = late.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert_eq!(node.get("dropped").await.unwrap(), None);
    assert_eq!(node.get("late").await.unwrap(), None);
}

#[tokio::test]
async fn closing_answers_waiting_calls_and_closes_the_file() {
    let node = Node::start().await;
    node.switch.set(Disk::StandsStill);
    let mut calls: Vec<_> =
        ["a", "b", "c", "d"].iter().map(|row| Box::pin(node.put(row, "1"))).collect();
    for call in &mut calls {
        assert!(call.now_or_never().is_none());
    }
    node.switch.wait_for_sync();
    let mut close = Box::pin(node.driver.close());
    assert!((&mut close).now_or_never().is_none(), "it waits for the writes");
    assert_eq!(node.put("too late", "1").await.unwrap_err().kind(), ErrorKind::Closed);
    node.switch.set(Disk::Works);
    close.await;
    for answer in join_all(calls).await {
        answer.unwrap();
    }
    node.driver.close().await;
    let name = KeyspaceName::new("tests").unwrap();
    let closed = [
        node.get("a").await.map(drop),
        node.driver.create(&name, Instant::FAR_FUTURE).await,
        node.driver.drop_keyspace(&name, Instant::FAR_FUTURE).await,
        node.driver.open(&name, Instant::FAR_FUTURE).await.map(drop),
    ];
    for answer in closed {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Closed);
    }

    let again = RedbDriver::open(RedbConfig::new(&node.path), node.clock.clock()).await.unwrap();
    let storage = again.open(&name, Instant::FAR_FUTURE).await.unwrap().unwrap();
    for row in ["a", "b", "c", "d"] {
        let there = storage.get(&key(row), Consistency::Plain, Instant::FAR_FUTURE).await.unwrap();
        assert_eq!(there, Some(Bytes::from("1")));
    }
    again.close().await;
}

#[tokio::test]
async fn a_file_that_cannot_be_created_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.redb");
    let switch = Switch::default();
    switch.set(Disk::Full);
    let disk = Arc::new(FailingDisk(switch));
    let opened =
        RedbDriver::open_on(RedbConfig::new(&path), Clock::system(), disk, LogSizes::default())
            .await;
    assert_eq!(opened.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// The error of a restore onto a file system that can neither link nor rename to a free name did
/// not say what to do.
#[test]
fn a_file_that_gets_no_name_is_reported_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.redb");
    let switch = Switch::default();
    switch.set(Disk::HasNoLinks);
    let disk = Arc::new(FailingDisk(switch));
    let file = StorageFile::new(RedbConfig::new(&path), disk, LogSizes::default());
    let error = file.make_whole(1, |_| Ok(()), |_, ()| Ok(())).unwrap_err();
    assert!(error.to_string().contains("make the file on another one"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "something is left");
}
