//! Tests of rows that expire, across restarts and crashes, and of their remains in the file.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use clock::{Instant, ManualClock};
use istorage::{
    AppStorageExt, Conditional, Consistency, Key, KeyspaceName, Order, OrderedPut, SharedStorage,
    StorageDriver,
};
use istorage_redb::{RedbConfig, RedbDriver};
use redb::{ReadableDatabase, ReadableTableMetadata, TableDefinition};

use crate::file_rows;

const SECOND: Duration = Duration::from_secs(1);

struct Node {
    driver: RedbDriver,
    storage: SharedStorage,
}

impl Node {
    async fn open(path: &Path, clock: &ManualClock) -> Node {
        let driver = RedbDriver::open(RedbConfig::new(path), clock.clock()).await.unwrap();
        let name = KeyspaceName::new("tests").unwrap();
        driver.create(&name, Instant::FAR_FUTURE).await.unwrap();
        let storage = driver.open(&name, Instant::FAR_FUTURE).await.unwrap().unwrap();
        Node { driver, storage }
    }

    async fn insert(&self, row: String, ttl: Option<Duration>) -> bool {
        let key = Key::new("p", row);
        let insert =
            self.storage.insert_if_not_exists(key, Bytes::from("v"), ttl, Instant::FAR_FUTURE);
        insert.await.unwrap().is_applied()
    }

    /// Inserts leases, all in one call.
    async fn lease(&self, rows: impl Iterator<Item = String>, ttl: Duration) {
        let insert = |row| Conditional::Insert {
            ccols: Bytes::from(row),
            value: Bytes::from("v"),
            ttl: Some(ttl),
        };
        let inserts = rows.map(insert).collect();
        let outcome = self.storage.write_if(Bytes::from("p"), inserts, Instant::FAR_FUTURE).await;
        assert!(outcome.unwrap().is_applied());
    }

    /// The remaining life of a row.
    async fn left(&self, row: &'static str) -> Option<Duration> {
        self.storage.query_ttl(&Key::new("p", row), SECOND).await.unwrap().flatten()
    }

    async fn is_there(&self, row: &'static str) -> bool {
        let key = Key::new("p", row);
        self.storage.get(&key, Consistency::Plain, Instant::FAR_FUTURE).await.unwrap().is_some()
    }

    async fn put(&self, row: &'static str) {
        self.storage.put(Key::new("p", row), Bytes::from("v"), Instant::FAR_FUTURE).await.unwrap();
    }
}

/// The number of rows, and of entries of the expiry index, in the file, visible or not.
fn rows_in_file(path: &Path) -> (u64, u64) {
    let database = redb::Database::open(path).unwrap();
    let txn = database.begin_read().unwrap();
    let rows: TableDefinition<&[u8], &[u8]> = TableDefinition::new("rows/tests");
    let expiry: TableDefinition<&[u8], ()> = TableDefinition::new("expiry/tests");
    let rows = txn.open_table(rows).unwrap().len().unwrap();
    (rows, txn.open_table(expiry).unwrap().len().unwrap())
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.redb");
    (folder, path)
}

#[tokio::test]
async fn a_row_is_absent_from_exactly_its_moment_of_expiry_on() {
    let (_folder, path) = folder();
    let clock = ManualClock::new(0);
    let node = Node::open(&path, &clock).await;
    assert!(node.insert("row".into(), Some(10 * SECOND)).await);
    assert_eq!(node.left("row").await, Some(10 * SECOND));
    clock.advance(10 * SECOND - Duration::from_nanos(1));
    assert!(node.is_there("row").await);
    assert!(!node.insert("row".into(), None).await);
    clock.advance(Duration::from_nanos(1));
    assert!(!node.is_there("row").await);
    assert!(node.insert("row".into(), None).await, "it can be written again");
    assert!(node.is_there("row").await && node.left("row").await.is_none());
    node.driver.close().await;
    assert_eq!(rows_in_file(&path), (1, 0), "the row lives for ever now");
}

#[tokio::test]
async fn a_calendar_that_steps_back_while_the_file_is_closed_prolongs_nothing() {
    let (_folder, path) = folder();
    let clock = ManualClock::new(0);
    let node = Node::open(&path, &clock).await;
    node.insert("row".into(), Some(10 * SECOND)).await;
    clock.advance(4 * SECOND);
    node.driver.close().await;
    clock.step_wall(-3_600_000);
    let node = Node::open(&path, &clock).await;
    assert_eq!(node.left("row").await, Some(6 * SECOND));
    clock.advance(6 * SECOND);
    assert!(!node.is_there("row").await);
    node.driver.close().await;
}

#[tokio::test]
async fn a_crash_prolongs_rows_by_at_most_the_time_since_the_last_expiring_write() {
    let (_folder, path) = folder();
    let clock = ManualClock::new(0);
    let node = Node::open(&path, &clock).await;
    node.insert("first".into(), Some(10 * SECOND)).await;
    clock.advance(4 * SECOND);
    node.insert("second".into(), Some(10 * SECOND)).await;
    clock.advance(3 * SECOND);
    // Everything acknowledged is in the file and its log, so a crash would leave such a copy.
    let crashed = path.with_extension("crashed");
    for ending in ["", ".log-0", ".log-1"] {
        let named = |path: &Path| PathBuf::from(format!("{}{ending}", path.display()));
        fs::copy(named(&path), named(&crashed)).unwrap();
    }
    clock.step_wall(-3_600_000);
    let again = Node::open(&crashed, &clock).await;
    assert_eq!(again.left("first").await, Some(6 * SECOND));
    assert_eq!(again.left("second").await, Some(10 * SECOND));
    again.driver.close().await;
    node.driver.close().await;
}

/// The time of the file followed the calendar while the file was closed. When a machine started
/// with a calendar that was far ahead, everything expired at once, and the file remembered that
/// time. The removed rows did not come back when the calendar was right again.
#[tokio::test]
async fn a_calendar_that_is_far_ahead_at_start_expires_nothing() {
    let (_folder, path) = folder();
    let clock = ManualClock::new(0);
    let node = Node::open(&path, &clock).await;
    node.insert("row".into(), Some(10 * SECOND)).await;
    clock.advance(SECOND);
    node.driver.close().await;
    clock.step_wall(50 * 365 * 86_400_000);
    let node = Node::open(&path, &clock).await;
    assert_eq!(node.left("row").await, Some(9 * SECOND));
    // Expired rows would be removed now.
    node.put("plain").await;
    clock.advance(SECOND);
    assert!(node.is_there("row").await);
    node.driver.close().await;
    clock.step_wall(-50 * 365 * 86_400_000);
    let node = Node::open(&path, &clock).await;
    assert_eq!(node.left("row").await, Some(8 * SECOND));
    node.driver.close().await;
}

#[tokio::test]
async fn time_stands_still_while_the_file_is_closed() {
    let (_folder, path) = folder();
    let clock = ManualClock::new(0);
    let node = Node::open(&path, &clock).await;
    node.insert("row".into(), Some(10 * SECOND)).await;
    clock.advance(SECOND);
    node.driver.close().await;
    clock.advance(3_600 * SECOND);
    let node = Node::open(&path, &clock).await;
    assert_eq!(node.left("row").await, Some(9 * SECOND));
    clock.advance(9 * SECOND);
    assert!(!node.is_there("row").await);
    node.driver.close().await;
    let node = Node::open(&path, &clock).await;
    assert!(!node.is_there("row").await, "what has expired stays so");
    node.driver.close().await;
}

#[tokio::test]
async fn expired_rows_are_removed_from_the_file_and_no_other_rows() {
    let (_folder, path) = folder();
    let clock = ManualClock::new(0);
    let node = Node::open(&path, &clock).await;
    node.put("plain").await;
    node.insert("for ever".into(), None).await;
    node.insert("prolonged".into(), Some(10 * SECOND)).await;
    node.insert("deleted".into(), Some(10 * SECOND)).await;
    node.lease((0..2_000).map(|n| format!("lease {n}")), 10 * SECOND).await;
    let order = Order::new(1).unwrap();
    let ordered = |row: &'static str, ttl| OrderedPut {
        key: Key::new("p", row),
        value: Bytes::new(),
        order,
        ttl,
    };
    let rows = vec![ordered("ordered", Some(10 * SECOND)), ordered("ordered for ever", None)];
    node.storage.put_ordered(rows, Instant::FAR_FUTURE).await.unwrap();
    let (key, v) = (Key::new("p", "prolonged"), Bytes::from("v"));
    let swap = node.storage.compare_and_swap(
        key,
        v.clone(),
        v.clone(),
        Some(20 * SECOND),
        Instant::FAR_FUTURE,
    );
    assert!(swap.await.unwrap().is_applied());
    let delete = node.storage.compare_and_delete(Key::new("p", "deleted"), v, Instant::FAR_FUTURE);
    assert!(delete.await.unwrap().is_applied());

    // The writes before are in the log only, until a keyspace is created.
    let other = KeyspaceName::new("other").unwrap();
    node.driver.create(&other, Instant::FAR_FUTURE).await.unwrap();
    let copy = path.with_extension("copy");
    fs::copy(&path, &copy).unwrap();
    assert_eq!(
        rows_in_file(&copy),
        (2_005, 2_002),
        "an entry for each lease, for prolonged and for ordered"
    );

    clock.advance(10 * SECOND);
    node.put("plain").await;
    node.driver.close().await;
    assert_eq!(
        rows_in_file(&path),
        (4, 1),
        "plain, for ever, ordered for ever and prolonged, which has an entry"
    );
}

#[tokio::test]
async fn leases_that_come_and_go_do_not_make_the_file_grow() {
    let (_folder, path) = folder();
    let clock = ManualClock::new(0);
    let node = Node::open(&path, &clock).await;
    let mut sizes = Vec::new();
    for round in 0..30 {
        node.lease((0..100).map(|n| format!("{round} {n}")), SECOND).await;
        file_rows(&node.driver).await;
        clock.advance(SECOND);
        sizes.push(fs::metadata(&path).unwrap().len());
    }
    assert_eq!(sizes[5], sizes[29], "{sizes:?}");
    node.driver.close().await;
}

#[tokio::test]
async fn a_dropped_keyspace_leaves_no_row_that_expires_later() {
    let (_folder, path) = folder();
    let clock = ManualClock::new(0);
    let node = Node::open(&path, &clock).await;
    let name = KeyspaceName::new("tests").unwrap();
    node.insert("row".into(), Some(10 * SECOND)).await;
    node.driver.drop_keyspace(&name, Instant::FAR_FUTURE).await.unwrap();
    node.driver.create(&name, Instant::FAR_FUTURE).await.unwrap();
    assert!(!node.is_there("row").await);
    node.insert("row".into(), None).await;
    clock.advance(10 * SECOND);
    node.put("plain").await;
    assert!(node.is_there("row").await);
    node.driver.close().await;
    assert_eq!(rows_in_file(&path), (2, 0));
}
