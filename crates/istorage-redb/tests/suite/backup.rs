//! Backups: their moment, the files that they become, and the damage that is found in them.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use clock::{Clock, Instant, ManualClock};
use futures::TryStreamExt;
use istorage::{
    AppStorageExt, AtomicBatch, Consistency, ErrorKind, Key, KeyspaceName, Put, SharedStorage,
    StorageDriver,
};
use istorage_redb::{OfflineBackup, RedbConfig, RedbDriver, check, restore, verify_backup};
use tempfile::TempDir;

const SOON: Instant = Instant::FAR_FUTURE;

async fn open(path: &Path) -> RedbDriver {
    RedbDriver::open(RedbConfig::new(path), Clock::system()).await.unwrap()
}

async fn keyspace(driver: &RedbDriver, name: &str) -> SharedStorage {
    let name = KeyspaceName::new(name).unwrap();
    driver.create(&name, SOON).await.unwrap();
    driver.open(&name, SOON).await.unwrap().unwrap()
}

async fn backup(driver: &RedbDriver) -> Vec<u8> {
    driver.backup(SOON).await.unwrap().unwrap().try_collect::<Vec<_>>().await.unwrap().concat()
}

/// Copies a file that no driver has open.
fn back_up(config: &RedbConfig, to: &mut Vec<u8>) -> istorage::Result<()> {
    OfflineBackup::open(config)?.write(to)
}

/// A folder, and a path in it.
fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.redb");
    (folder, path)
}

/// A file with some rows, closed.
async fn file(path: &Path) {
    let driver = open(path).await;
    for name in ["one", "two"] {
        let storage = keyspace(&driver, name).await;
        for row in 0..4_u8 {
            storage
                .put(Key::new(vec![1, row], vec![row]), vec![row; 9].into(), SOON)
                .await
                .unwrap();
        }
    }
    driver.close().await;
}

/// Writes a number into all rows, in one batch.
async fn write_all(storage: &SharedStorage, number: u64) {
    let value = Bytes::from([&number.to_be_bytes()[..], &[7; 2_000]].concat());
    let put =
        |row: u16| Put { key: Key::new("p", row.to_be_bytes().to_vec()), value: value.clone() };
    let puts = (0..500).map(put).collect();
    let batch = AtomicBatch { puts, ..AtomicBatch::default() };
    assert!(storage.write_atomic(batch, SOON).await.unwrap().is_applied());
}

#[tokio::test]
async fn a_backup_has_the_rows_of_one_moment_while_writes_go_on() {
    let ((_folder, path), (_other, copy)) = (place(), place());
    let driver = open(&path).await;
    let storage = keyspace(&driver, "tests").await;
    keyspace(&driver, "empty").await;
    write_all(&storage, 1).await;
    let mut stream = driver.backup(SOON).await.unwrap().unwrap();
    let mut bytes = stream.try_next().await.unwrap().unwrap().to_vec();
    let mut pieces = 1;
    while let Some(piece) = {
        write_all(&storage, 1 + pieces).await;
        stream.try_next().await.unwrap()
    } {
        assert!(piece.len() < 300 << 10, "{}", piece.len());
        bytes.extend_from_slice(&piece);
        pieces += 1;
    }
    assert!(pieces >= 4, "{pieces}");
    let report = verify_backup(&bytes[..]).unwrap();
    assert_eq!((report.keyspaces, report.rows), (2, 500));
    assert_eq!(report.bytes, bytes.len() as u64);

    assert_eq!(restore(&bytes[..], &RedbConfig::new(&copy), &Clock::system()).unwrap(), report);
    let restored = open(&copy).await;
    let empty = KeyspaceName::new("empty").unwrap();
    assert!(restored.open(&empty, SOON).await.unwrap().is_some());
    let rows = keyspace(&restored, "tests").await;
    let read = rows.read("p".into(), istorage::Range::all(), Consistency::Plain, Duration::MAX);
    let read: Vec<_> = read.try_collect().await.unwrap();
    assert_eq!(read.len(), 500);
    assert!(read.iter().all(|row| row.value[..8] == 1_u64.to_be_bytes()), "of one moment");
    // Both files go on by themselves.
    write_all(&rows, 9).await;
    write_all(&storage, 8).await;
    assert!(bytes == backup_again(&bytes, &copy), "the backup of a copy differs");
}

/// Restores a backup once more, and returns a backup of the copy.
fn backup_again(bytes: &[u8], beside: &Path) -> Vec<u8> {
    let config = RedbConfig::new(beside.with_extension("again"));
    restore(bytes, &config, &Clock::system()).unwrap();
    let mut again = Vec::new();
    back_up(&config, &mut again).unwrap();
    again
}

/// The time of a file counts on from that of its backup. Near the end of this time no lease lasts,
/// and a node on the restored file never led.
#[tokio::test]
async fn a_backup_from_the_far_future_is_refused() {
    /// The place of the time in the head of a backup.
    const TIME: std::ops::Range<usize> = 24..32;
    let ((_folder, path), (_other, copy)) = (place(), place());
    let driver = open(&path).await;
    write_all(&keyspace(&driver, "tests").await, 1).await;
    let whole = backup(&driver).await;
    let at = |nanos: u64| {
        let mut bytes = whole[..whole.len() - 4].to_vec();
        bytes[TIME].copy_from_slice(&nanos.to_be_bytes());
        let sum = crc32fast::hash(&bytes);
        [&bytes[..], &sum.to_be_bytes()].concat()
    };
    let clock = ManualClock::new(0).clock();
    let now = clock.wall().as_nanos();
    for nanos in [now + 1, u64::MAX] {
        let error = restore(&at(nanos)[..], &RedbConfig::new(&copy), &clock).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        for part in ["far future", "`date`", "use another backup"] {
            assert!(error.to_string().contains(part), "`{part}` is not in: {error}");
        }
        assert_eq!(fs::read_dir(copy.parent().unwrap()).unwrap().count(), 0, "nothing is left");
    }
    restore(&at(now)[..], &RedbConfig::new(&copy), &clock).unwrap();
}

#[tokio::test]
async fn a_restored_row_expires_when_its_time_is_over() {
    let ((_folder, path), (_other, copy)) = (place(), place());
    let manual = ManualClock::new(0);
    let driver = RedbDriver::open(RedbConfig::new(&path), manual.clock()).await.unwrap();
    let storage = keyspace(&driver, "tests").await;
    let (key, other) = (Key::new("lease", ""), Key::new("other", ""));
    let second = Duration::from_secs(1);
    for key in [&key, &other] {
        let ttl = Some(20 * second);
        let insert = storage.insert_if_not_exists(key.clone(), "a".into(), ttl, SOON);
        assert!(insert.await.unwrap().is_applied());
    }
    manual.advance(5 * second);
    let bytes = backup(&driver).await;
    restore(&bytes[..], &RedbConfig::new(&copy), &Clock::system()).unwrap();

    manual.advance(1_000 * second);
    let driver = RedbDriver::open(RedbConfig::new(&copy), manual.clock()).await.unwrap();
    let storage = keyspace(&driver, "tests").await;
    let left = storage.ttl_get(&key, second).await.unwrap().unwrap().ttl.unwrap();
    assert_eq!(left, 15 * second);
    manual.advance(15 * second);
    let insert = storage.insert_if_not_exists(key, "b".into(), None, SOON).await.unwrap();
    assert!(insert.is_applied());
    // The write removed the other row, too. A row without its entry in the index would stay.
    driver.close().await;
    assert_eq!(check(&RedbConfig::new(&copy)).unwrap().rows, 1);
}

#[tokio::test]
async fn every_damage_of_a_backup_is_found() {
    let (_folder, path) = place();
    file(&path).await;
    let mut bytes = Vec::new();
    back_up(&RedbConfig::new(&path), &mut bytes).unwrap();
    assert_eq!(verify_backup(&bytes[..]).unwrap().rows, 8);
    for at in 0..bytes.len() {
        assert!(verify_backup(&bytes[..at]).is_err(), "cut off after {at} bytes");
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            let error = verify_backup(&flipped[..]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "bit {bit} of byte {at}: {error}");
        }
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(verify_backup(&longer[..]).unwrap_err().to_string().contains("follow"));
    // After the mark come the formats of the backup and of the file.
    for (at, known) in [(19, "reads only the format 1:"), (23, "reads only the formats 3, 4, 5:")] {
        let mut newer = bytes.clone();
        newer[at] = 9;
        let error = verify_backup(&newer[..]).unwrap_err().to_string();
        assert!(error.contains("has the format 9") && error.contains(known), "{error}");
    }
}

#[tokio::test]
async fn a_restore_replaces_nothing_and_leaves_no_half_file() {
    let ((_folder, path), (other, copy)) = (place(), place());
    file(&path).await;
    let (config, before) = (RedbConfig::new(&path), fs::read(&path).unwrap());
    let mut bytes = Vec::new();
    back_up(&config, &mut bytes).unwrap();
    assert!(before == fs::read(&path).unwrap(), "a backup changed the file");

    let error = restore(&bytes[..], &config, &Clock::system()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("node.redb exists"), "{error}");
    assert!(before == fs::read(&path).unwrap(), "a restore changed another file");

    let to = RedbConfig::new(&copy);
    let last = bytes.len() - 1;
    let error = restore(&bytes[..last], &to, &Clock::system()).unwrap_err();
    assert!(error.to_string().contains("cut off"), "{error}");
    assert_eq!(fs::read_dir(other.path()).unwrap().count(), 0, "something is left");
    // The error gave the advice for a file that is missing.
    let log = other.path().join("node.redb.log-1");
    fs::write(&log, "").unwrap();
    let error = restore(&bytes[..], &to, &Clock::system()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let text = "node.redb.log-1 exists: the log of a former storage file";
    assert!(error.to_string().contains(text), "{error}");
    assert!(!copy.exists(), "a file was made beside the log of another one");
    fs::remove_file(log).unwrap();
    // A killed restore left this forever.
    fs::write(copy.with_extension("redb.new-0123456789abcdef"), "left").unwrap();
    restore(&bytes[..], &to, &Clock::system()).unwrap();
    assert_eq!(fs::read_dir(other.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_file_in_use_is_backed_up_by_its_driver_only() {
    let (_folder, path) = place();
    file(&path).await;
    let driver = open(&path).await;
    let error = back_up(&RedbConfig::new(&path), &mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("another process"), "{error}");

    // A backup that nobody reads keeps neither the driver nor the file.
    let mut stream = driver.backup(SOON).await.unwrap().unwrap();
    driver.close().await;
    assert_eq!(stream.try_next().await.unwrap_err().kind(), ErrorKind::Closed);
    let absent = RedbConfig::new(path.with_extension("absent"));
    assert_eq!(back_up(&absent, &mut Vec::new()).unwrap_err().kind(), ErrorKind::Invalid);
    let again = open(&path).await;
    drop(stream);
    assert_eq!(verify_backup(&backup(&again).await[..]).unwrap().rows, 8);
}

#[tokio::test]
async fn a_backup_ends_at_its_time() {
    let (_folder, path) = place();
    file(&path).await;
    let manual = ManualClock::new(0);
    let driver = RedbDriver::open(RedbConfig::new(&path), manual.clock()).await.unwrap();
    let until = manual.clock().now() + Duration::from_secs(60);
    let mut stream = driver.backup(until).await.unwrap().unwrap();
    manual.advance(Duration::from_secs(60));
    let error = stream.try_next().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(driver.backup(until).await.is_err());
}

/// The damaged row fills a piece of the backup, so the piece would be written if the row were
/// verified only after it was copied.
#[tokio::test]
async fn a_damaged_row_is_named_and_not_copied() {
    let (_folder, path) = place();
    let driver = open(&path).await;
    let storage = keyspace(&driver, "tests").await;
    let value = b"a value that is in the file";
    let long = [&value[..], &[7; 300 << 10]].concat();
    for (row, value) in [("b", Bytes::from("before")), ("c", long.into()), ("d", "behind".into())] {
        storage.put(Key::new("p", row), value, SOON).await.unwrap();
    }
    let whole = backup(&driver).await;
    driver.close().await;
    let mut bytes = fs::read(&path).unwrap();
    let places = |of: &[u8]| -> Vec<usize> {
        (0..of.len()).filter(|at| of[*at..].starts_with(value)).collect()
    };
    assert_eq!(places(&whole).len(), 1, "a backup has each value as it is");
    let damaged = places(&bytes);
    assert!(!damaged.is_empty());
    damaged.into_iter().for_each(|at| bytes[at] ^= 1);
    fs::write(&path, bytes).unwrap();
    let mut written = Vec::new();
    let error = back_up(&RedbConfig::new(&path), &mut written).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("0x70/0x63"), "{error}");
    let rest = &value[1..];
    assert!(!written.windows(rest.len()).any(|part| part == rest), "the damaged row was copied");
}
