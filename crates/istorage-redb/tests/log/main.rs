//! Tests of the log: what is opened after a crash, and which logs are refused.
//!
//! A crash is a copy of the files of an open driver at a moment when no call is under way.

#![allow(clippy::unwrap_used)]

mod frames;
mod wrong;

use std::{
    fs,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use clock::{Clock, Instant};
use frames::{NAMES, log_in_use, places};
use istorage::{
    AppStorageExt, Consistency, Error, ErrorKind, Key, KeyspaceName, Put, SharedStorage,
    StorageDriver,
};
use istorage_redb::{RedbConfig, RedbDriver, check};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use redb::{ReadableTable, TableDefinition};

const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");

struct Node {
    folder: tempfile::TempDir,
    driver: RedbDriver,
    storage: SharedStorage,
}

impl Node {
    async fn start() -> Node {
        Node::open(tempfile::tempdir().unwrap()).await.unwrap()
    }

    async fn open(folder: tempfile::TempDir) -> Result<Node, Error> {
        let driver = wrong::open(folder.path()).await?;
        let name = KeyspaceName::new("tests").unwrap();
        driver.create(&name, Instant::FAR_FUTURE).await?;
        let storage = driver.open(&name, Instant::FAR_FUTURE).await?.unwrap();
        Ok(Node { folder, driver, storage })
    }

    async fn put(&self, row: u32) {
        self.put_value(row, Bytes::from("value")).await;
    }

    async fn put_value(&self, row: u32, value: Bytes) {
        self.storage.put(key(row), value, Instant::FAR_FUTURE).await.unwrap();
    }

    async fn rows(&self) -> Vec<u32> {
        let mut rows = Vec::new();
        for row in 0..100 {
            let read = self.storage.get(&key(row), Consistency::Plain, Instant::FAR_FUTURE).await;
            rows.extend(read.unwrap().map(|_| row));
        }
        rows
    }

    async fn close(self) -> tempfile::TempDir {
        self.driver.close().await;
        self.folder
    }

    fn copy(&self) -> tempfile::TempDir {
        let copy = tempfile::tempdir().unwrap();
        copy_files(self.folder.path(), copy.path(), &NAMES);
        wrong::crashed(copy.path());
        copy
    }
}

fn key(row: u32) -> Key {
    Key::new("p", row.to_be_bytes().to_vec())
}

fn copy_files(from: &Path, to: &Path, names: &[&str]) {
    for name in names {
        fs::copy(from.join(name), to.join(name)).unwrap();
    }
}

fn copy_existing(from: &Path, to: &Path) {
    let existing: Vec<&str> = NAMES.into_iter().filter(|name| from.join(name).exists()).collect();
    copy_files(from, to, &existing);
}

/// A crash of a node with this many rows, the file of its log, and the places of the frames there.
async fn crashed_with_rows(rows: u32) -> (tempfile::TempDir, PathBuf, Vec<usize>) {
    let node = Node::start().await;
    for row in 0..rows {
        node.put(row).await;
    }
    let crashed = node.copy();
    let log = log_in_use(crashed.path());
    let frames = places(&fs::read(&log).unwrap());
    (crashed, log, frames)
}

/// The place of the first value after a place in a file of the log.
fn value_behind(log: &Path, at: usize) -> usize {
    let bytes = fs::read(log).unwrap();
    at + bytes[at..].windows(5).position(|bytes| bytes == b"value").unwrap()
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

async fn refused(folder: tempfile::TempDir, words: &[&str]) -> tempfile::TempDir {
    let read = || NAMES.map(|name| fs::read(folder.path().join(name)).ok());
    let before = read();
    let opened = wrong::open(folder.path()).await;
    let error = opened.expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
    for word in words {
        assert!(error.to_string().contains(word), "`{word}` is not in: {error}");
    }
    assert!(before == read(), "the files were changed");
    folder
}

#[tokio::test]
async fn after_a_crash_the_effects_of_the_log_are_there_and_stay() {
    let node = Node::start().await;
    for row in 0..5 {
        node.put(row).await;
    }
    let crashed = node.copy();
    let report = check(&RedbConfig::new(crashed.path().join(NAMES[0]))).unwrap();
    assert!(report.is_intact() && report.rows == 5, "a check reads the log too: {report:?}");
    let node_after = Node::open(crashed).await.unwrap();
    assert_eq!(node_after.rows().await, [0, 1, 2, 3, 4]);
    node_after.put(5).await;
    let crashed = Node::open(node_after.copy()).await.unwrap();
    assert_eq!(crashed.rows().await, [0, 1, 2, 3, 4, 5]);
    let closed = Node::open(crashed.close().await).await.unwrap();
    assert_eq!(closed.rows().await, [0, 1, 2, 3, 4, 5]);
}

/// Large values, and more values than fit into a segment.
#[tokio::test]
async fn large_writes_and_full_segments_are_there_after_a_crash() {
    let node = Node::start().await;
    // The last segment has frames, too.
    for row in 0..33 {
        let len = if row % 10 == 9 { 3 << 20 } else { 900 << 10 };
        node.put_value(row, Bytes::from(vec![row as u8; len])).await;
    }
    let crashed = Node::open(node.copy()).await.unwrap();
    assert_eq!(crashed.rows().await, (0..33).collect::<Vec<_>>());
}

/// Making a keyspace is a durable commit, and so is the filing of a full segment. Between these,
/// frames alone make writes durable.
#[test]
fn only_durable_commits_are_reported() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let durations = || {
        let mut all = snapshotter.snapshot().into_vec().into_iter();
        let is_duration = |key: &str| key == "istorage_redb_durable_commit_seconds";
        let (.., value) = all.find(|(key, ..)| is_duration(key.key().name())).unwrap();
        let DebugValue::Histogram(seconds) = value else { panic!("{value:?}") };
        seconds
    };
    metrics::with_local_recorder(&recorder, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.unwrap().block_on(async {
            let node = Node::start().await;
            assert_eq!(durations().len(), 1, "a keyspace was made");
            for row in 0..5 {
                node.put(row).await;
            }
            assert_eq!(durations().len(), 0, "frames were written");
            for row in 5..25 {
                node.put_value(row, Bytes::from(vec![1; 900 << 10])).await;
            }
            drop(node.close().await);
            let reported = durations();
            assert_eq!(reported.len(), 2, "a segment was full, and the file was closed");
            assert!(reported.iter().all(|seconds| seconds.0 > 0.0));
        });
    });
}

#[tokio::test]
async fn a_log_that_is_missing_is_refused_until_it_is_back() {
    let node = Node::start().await;
    node.put(1).await;
    let crashed = node.copy();
    let log = log_in_use(crashed.path());
    fs::rename(&log, crashed.path().join("elsewhere")).unwrap();
    let crashed = refused(crashed, &["is missing", log.to_str().unwrap()]).await;
    fs::rename(crashed.path().join("elsewhere"), &log).unwrap();
    assert_eq!(Node::open(crashed).await.unwrap().rows().await, [1]);
}

#[tokio::test]
async fn a_log_of_another_file_is_refused() {
    let (node, other) = (Node::start().await, Node::start().await);
    node.put(1).await;
    other.put(2).await;
    let crashed = node.copy();
    copy_files(other.folder.path(), crashed.path(), &NAMES[1..]);
    refused(crashed, &["does not belong"]).await;
}

/// A keyspace was made later, in a commit of the file. The newer log had no rows that were written
/// after it.
#[tokio::test]
async fn a_file_that_is_older_than_a_log_without_rows_is_refused() {
    let node = Node::start().await;
    node.put(1).await;
    let mixed = tempfile::tempdir().unwrap();
    copy_files(node.folder.path(), mixed.path(), &NAMES[..1]);
    let other = KeyspaceName::new("other").unwrap();
    node.driver.create(&other, Instant::FAR_FUTURE).await.unwrap();
    let closed = node.close().await;
    copy_files(closed.path(), mixed.path(), &NAMES[1..]);
    refused(mixed, &["does not belong"]).await;
}

/// The file was copied before its log, so the log has all that the file lacks.
#[tokio::test]
async fn a_log_that_goes_on_behind_its_file_completes_the_file() {
    let node = Node::start().await;
    node.put(1).await;
    let copy = tempfile::tempdir().unwrap();
    copy_files(node.folder.path(), copy.path(), &NAMES[..1]);
    node.put_value(2, Bytes::from(vec![1; 3 << 20])).await;
    copy_files(node.folder.path(), copy.path(), &NAMES[1..]);
    assert_eq!(Node::open(copy).await.unwrap().rows().await, [1, 2]);
}

/// Each head in the old part of the log had its checksum computed, over as many bytes as it named.
#[tokio::test]
async fn old_bytes_that_look_like_frames_delay_no_opening() {
    let node = Node::start().await;
    node.put_value(1, Bytes::from(vec![1; 900 << 10])).await;
    let crashed = node.copy();
    let log = log_in_use(crashed.path());
    let mut bytes = fs::read(&log).unwrap();
    let last = *places(&bytes).last().unwrap() + (1 << 20);
    bytes.resize(16 << 20, 0);
    for at in (last..bytes.len() - 512).step_by(512) {
        bytes[at..at + 8].copy_from_slice(b"VVML\x00\x60\x00\x00");
    }
    fs::write(&log, bytes).unwrap();
    let clock = Clock::system();
    let began = clock.now();
    assert_eq!(Node::open(crashed).await.unwrap().rows().await, [1]);
    let took = clock.now() - began;
    assert!(took.as_secs() < 20, "{took:?}");
}

/// The folder of such a path is the working directory. It has an empty name, which cannot be
/// opened.
#[tokio::test]
async fn a_path_without_a_folder_is_in_the_working_directory() {
    let path = PathBuf::from(format!("bare-{}.redb", std::process::id()));
    let opened = RedbDriver::open(RedbConfig::new(&path), Clock::system()).await;
    let closed = match opened {
        Ok(driver) => {
            driver.close().await;
            Ok(())
        }
        Err(error) => Err(error),
    };
    for ending in ["", ".log-0", ".log-1"] {
        let _ = fs::remove_file(format!("{}{ending}", path.display()));
    }
    closed.unwrap();
}

#[tokio::test]
async fn a_log_that_is_older_or_newer_than_its_file_is_refused() {
    let node = Node::start().await;
    node.put(1).await;
    let early = node.copy();
    let node = Node::open(node.close().await).await.unwrap();
    node.put(2).await;
    let late = node.copy();

    let mixed = tempfile::tempdir().unwrap();
    copy_files(late.path(), mixed.path(), &NAMES[..1]);
    copy_files(early.path(), mixed.path(), &NAMES[1..]);
    let mixed = refused(mixed, &["does not belong"]).await;
    copy_files(early.path(), mixed.path(), &NAMES[..1]);
    copy_files(late.path(), mixed.path(), &NAMES[1..]);
    refused(mixed, &["does not belong"]).await;
}

#[tokio::test]
async fn a_file_that_was_closed_in_order_needs_no_log() {
    let node = Node::start().await;
    node.put(1).await;
    let folder = node.close().await;
    let copy = tempfile::tempdir().unwrap();
    copy_files(folder.path(), copy.path(), &NAMES[..1]);
    let node = Node::open(copy).await.unwrap();
    assert_eq!(node.rows().await, [1]);
    node.put(2).await;
    let crashed = tempfile::tempdir().unwrap();
    copy_existing(node.folder.path(), crashed.path());
    assert_eq!(Node::open(crashed).await.unwrap().rows().await, [1, 2]);
}

#[tokio::test]
async fn a_file_that_was_closed_in_order_needs_no_frame_in_front_of_its_end() {
    let node = Node::start().await;
    for row in 0..3 {
        node.put(row).await;
    }
    let folder = node.close().await;
    let log = log_in_use(folder.path());
    let frames = places(&fs::read(&log).unwrap());
    flip(&log, frames[2] + 50);
    assert_eq!(Node::open(folder).await.unwrap().rows().await, [0, 1, 2]);
}

#[tokio::test]
async fn a_log_without_its_file_is_refused() {
    let node = Node::start().await;
    node.put(1).await;
    let crashed = node.copy();
    fs::remove_file(crashed.path().join(NAMES[0])).unwrap();
    let advice = ["is missing", "put the file back", "move the log, too", "cannot be opened"];
    let crashed = refused(crashed, &advice).await;
    assert!(!crashed.path().join(NAMES[0]).exists(), "no new file was made");
    let crashed = refused(crashed, &["log-1 exist: "]).await;
    fs::remove_file(crashed.path().join(NAMES[2])).unwrap();
    refused(crashed, &["log-0 exists: "]).await;
}

/// The error of a log without its file tells the operator to move both.
#[tokio::test]
async fn a_file_that_is_moved_with_its_log_has_all_rows() {
    let node = Node::start().await;
    node.put(1).await;
    let (moved, old) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    copy_files(node.folder.path(), old.path(), &NAMES);
    let place = |name: &str| moved.path().join(name.replacen("node", "old", 1));
    for name in NAMES {
        fs::rename(old.path().join(name), place(name)).unwrap();
    }
    let driver = RedbDriver::open(RedbConfig::new(place(NAMES[0])), Clock::system()).await;
    let name = KeyspaceName::new("tests").unwrap();
    let storage = driver.unwrap().open(&name, Instant::FAR_FUTURE).await.unwrap().unwrap();
    let row = storage.get(&key(1), Consistency::Plain, Instant::FAR_FUTURE).await;
    assert_eq!(row.unwrap(), Some(Bytes::from("value")));
}

#[tokio::test]
async fn a_damaged_frame_in_front_of_an_intact_one_is_refused_with_its_place() {
    let (crashed, log, frames) = crashed_with_rows(4).await;
    let damaged = frames[frames.len() - 2];
    flip(&log, value_behind(&log, damaged));
    let place = format!("damaged at byte {damaged}");
    refused(crashed, &[&place, log.to_str().unwrap()]).await;
}

/// A crash may cut off the last frame of a log. No call was answered then.
#[tokio::test]
async fn a_last_frame_that_is_not_intact_ends_the_log() {
    let (crashed, log, frames) = crashed_with_rows(4).await;
    flip(&log, value_behind(&log, *frames.last().unwrap()));
    assert_eq!(Node::open(crashed).await.unwrap().rows().await, [0, 1, 2]);
}

/// The names of both files of the log were removed while the node worked.
#[tokio::test]
async fn a_log_that_is_removed_is_written_anew() {
    let node = Node::start().await;
    node.put(1).await;
    for name in &NAMES[1..] {
        let _ = fs::remove_file(node.folder.path().join(name));
    }
    node.put(2).await;
    let copy = tempfile::tempdir().unwrap();
    copy_existing(node.folder.path(), copy.path());
    assert_eq!(Node::open(copy).await.unwrap().rows().await, [1, 2]);
}

#[tokio::test]
async fn a_file_of_the_format_before_the_log_is_opened_and_gets_a_log() {
    let node = Node::start().await;
    node.put(1).await;
    let folder = node.close().await;
    let format = |folder: &Path, to: Option<u32>| {
        let database = redb::Database::create(folder.join(NAMES[0])).unwrap();
        let txn = database.begin_write().unwrap();
        let mut meta = txn.open_table(META).unwrap();
        if let Some(to) = to {
            meta.insert("format", &to.to_be_bytes()[..]).unwrap();
            meta.remove("log").unwrap();
        }
        let found = meta.get("format").unwrap().unwrap().value().to_vec();
        drop(meta);
        txn.commit().unwrap();
        found
    };
    format(folder.path(), Some(2));
    let folder = refused(folder, &["does not belong"]).await;
    for name in &NAMES[1..] {
        let _ = fs::remove_file(folder.path().join(name));
    }
    let config = RedbConfig::new(folder.path().join(NAMES[0]));
    let driver = RedbDriver::open(config, Clock::system()).await.unwrap();
    let name = KeyspaceName::new("tests").unwrap();
    let storage = driver.open(&name, Instant::FAR_FUTURE).await.unwrap().unwrap();
    let puts = vec![Put { key: key(2), value: Bytes::new() }];
    storage.put_batch(puts, Instant::FAR_FUTURE).await.unwrap();
    driver.close().await;
    assert_eq!(format(folder.path(), None), 5_u32.to_be_bytes());
    assert_eq!(Node::open(folder).await.unwrap().rows().await, [1, 2]);
}

/// The format before the bands of orders has the same rows, without negative ranks.
#[tokio::test]
async fn a_file_of_the_format_before_the_bands_is_opened_and_gets_the_new_format() {
    let node = Node::start().await;
    node.put(1).await;
    let folder = node.close().await;
    let database = || redb::Database::create(folder.path().join(NAMES[0])).unwrap();
    let txn = database().begin_write().unwrap();
    txn.open_table(META).unwrap().insert("format", &3_u32.to_be_bytes()[..]).unwrap();
    txn.commit().unwrap();
    let config = RedbConfig::new(folder.path().join(NAMES[0]));
    let driver = RedbDriver::open(config, Clock::system()).await.unwrap();
    driver.close().await;
    let txn = database().begin_write().unwrap();
    let format = txn.open_table(META).unwrap().get("format").unwrap().unwrap().value().to_vec();
    assert_eq!(format, 5_u32.to_be_bytes());
    drop(txn);
    assert_eq!(Node::open(folder).await.unwrap().rows().await, [1]);
}
