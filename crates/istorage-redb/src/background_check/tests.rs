use std::{
    fs,
    path::{Path, PathBuf},
    sync::mpsc,
};

use bytes::Bytes;
use clock::{Clock, Instant};
use istorage::{Key, Put, StorageDriver};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tck::trial::LogLines;

use super::*;
use crate::{
    RedbConfig, RedbDriver, disk::real::RealDisk, failures::logs, file::OpenedFile, log::LogSizes,
};

const ROWS: u32 = 200;

/// The key of a row of the file.
fn row_key(n: u32) -> Vec<u8> {
    [b"\0\x01p", &n.to_be_bytes()[..]].concat()
}

/// Makes a file with rows of several pieces, and copies it as a crash would leave it.
async fn crashed() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.redb");
    let driver = RedbDriver::open(RedbConfig::new(&path), Clock::system()).await.unwrap();
    let name = KeyspaceName::new("tests").unwrap();
    driver.create(&name, Instant::FAR_FUTURE).await.unwrap();
    let storage = driver.open(&name, Instant::FAR_FUTURE).await.unwrap().unwrap();
    // Every fifth row is a piece of its own.
    let row = |n: u32| Put {
        key: Key::new("p", Bytes::copy_from_slice(&n.to_be_bytes())),
        value: Bytes::from(vec![n as u8; if n.is_multiple_of(5) { 300 << 10 } else { 10 }]),
    };
    storage.put_batch((0..ROWS).map(row).collect(), Instant::FAR_FUTURE).await.unwrap();
    // Another keyspace: the file has all rows of the log then.
    let other = KeyspaceName::new("other").unwrap();
    driver.create(&other, Instant::FAR_FUTURE).await.unwrap();
    let copy = folder.path().join("crashed.redb");
    for ending in ["", ".log-0", ".log-1"] {
        let named = |path: &Path| format!("{}{ending}", path.display());
        fs::copy(named(&path), named(&copy)).unwrap();
    }
    driver.close().await;
    let closed = StorageFile::new(RedbConfig::new(&path), Arc::new(RealDisk), LogSizes::default());
    assert!(!closed.open(0).unwrap().is_to_check, "it was closed in order");
    (folder, copy)
}

/// Flips a bit of the last byte of the key of a row on the pages of rows.
fn flip(path: &Path, n: u32) {
    const PAGE: usize = 4_096;
    const LEAF: u8 = 1;
    let (key, mut file) = (row_key(n), fs::read(path).unwrap());
    let is_key = |at: &usize| file[*at..].starts_with(&key) && file[*at / PAGE * PAGE] == LEAF;
    let places: Vec<usize> = (0..file.len()).filter(is_key).collect();
    assert!(!places.is_empty(), "row {n}");
    places.into_iter().for_each(|at| file[at + 2] ^= 0x40);
    fs::write(path, file).unwrap();
}

/// Checks the file. Returns the lines of the log and the number of findings of the metric.
fn checked(path: &Path) -> (Vec<String>, u64) {
    let file = StorageFile::new(RedbConfig::new(path), Arc::new(RealDisk), LogSizes::default());
    let OpenedFile { contents, is_to_check, .. } = file.open(0).unwrap();
    assert!(is_to_check);
    let keyspaces = contents.keyspaces.into_iter().collect();
    let (_running, stop) = mpsc::sync_channel(0);
    let recorder = DebuggingRecorder::new();
    let meter = metrics::with_local_recorder(&recorder, || metrics::counter!("damaged"));
    let (lines, _guard) = LogLines::of_this_thread();
    BackgroundCheck { file: Arc::new(file), stop, meter, rows: 0, damaged: 0 }.run(keyspaces);
    match recorder.snapshotter().snapshot().into_vec().pop().unwrap() {
        (_, _, _, DebugValue::Counter(count)) => (lines.all(), count),
        (_, _, _, other) => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_whole_file_is_read_to_its_end_and_nothing_is_reported() {
    let (_folder, path) = crashed().await;
    let (lines, damaged) = checked(&path);
    assert_eq!(damaged, 0, "{lines:?}");
    let last = lines.last().unwrap();
    assert!(last.contains("no row is damaged") && last.contains(&format!("rows={ROWS}")), "{last}");
}

/// The pause was the same after each piece, and a piece ends after a whole row. So large rows were
/// read as fast as the disk could, while the node ran commands.
#[test]
fn at_most_10_mib_are_read_in_a_second() {
    for bytes in [1, PIECE - 1, PIECE, PIECE + 1, 1_000_000, 16 << 20] {
        let rate = bytes as f64 / pause_after(bytes).as_secs_f64();
        assert!(rate <= f64::from(10 << 20), "{bytes} bytes: {rate} in a second");
    }
}

/// Nothing read the row with the flipped bit for a year, and meanwhile the last backup that had the
/// row was removed.
#[tokio::test]
async fn each_damaged_row_is_reported_and_all_other_rows_are_checked() {
    let (_folder, path) = crashed().await;
    let damaged = [0, 77, 78, 140, ROWS - 1];
    damaged.into_iter().for_each(|n| flip(&path, n));
    let (lines, found) = checked(&path);
    assert_eq!(found, damaged.len() as u64, "{lines:?}");
    for n in damaged {
        let name = format!("0x30/0x{n:08x}");
        let line = lines.iter().find(|line| line.contains(&name)).unwrap_or_else(|| panic!("{n}"));
        assert!(line.contains("ERROR") && line.contains("vvm storage check"), "{line}");
    }
    let last = lines.last().unwrap();
    let whole = format!("rows={}", ROWS - damaged.len() as u32);
    assert!(last.contains("ERROR") && last.contains(&whole), "{last}");
    assert!(last.contains("vvm storage check") && last.contains("backup"), "{last}");
}

/// A check of a large file takes long. A driver that waited for its end could not be closed.
#[tokio::test]
async fn a_driver_that_is_closed_ends_the_check() {
    let (_folder, path) = crashed().await;
    logs::of(&path);
    let driver = RedbDriver::open(RedbConfig::new(&path), Clock::system()).await.unwrap();
    driver.close().await;
    let lines = logs::of(&path).concat();
    assert!(lines.contains("its rows are checked"), "{lines}");
    assert!(!lines.contains("storage file checked"), "{lines}");
}
