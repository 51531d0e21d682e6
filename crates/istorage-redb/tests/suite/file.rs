//! Tests of the file: the files that are accepted, the files that are refused, and the sizes of
//! rows and streams.

use std::{fs, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use clock::{Clock, Instant};
use futures::{TryStreamExt, future::join_all};
use istorage::{
    AppStorageExt, Consistency, Error, ErrorKind, Key, KeyspaceName, Put, Range, SharedStorage,
    StorageDriver,
};
use istorage_redb::{RedbConfig, RedbDriver, check};
use redb::TableDefinition;

use crate::file_rows;

async fn open(path: &Path) -> Result<RedbDriver, Error> {
    RedbDriver::open(RedbConfig::new(path), Clock::system()).await
}

async fn keyspace(driver: &RedbDriver, name: &str) -> SharedStorage {
    let name = KeyspaceName::new(name).unwrap();
    driver.create(&name, Instant::FAR_FUTURE).await.unwrap();
    driver.open(&name, Instant::FAR_FUTURE).await.unwrap().unwrap()
}

/// Asserts that the file is refused, and is the same afterwards.
async fn refused(path: &Path, kind: ErrorKind, word: &str) {
    let before = fs::read(path).unwrap();
    let error = open(path).await.unwrap_err();
    assert_eq!(error.kind(), kind, "{error:?}");
    assert!(error.to_string().contains(word), "`{word}` is not in: {error:?}");
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error:?}");
    assert!(before == fs::read(path).unwrap(), "the file was changed");
}

#[tokio::test]
async fn the_folders_above_the_file_are_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/b/node.redb");
    let driver = open(&path).await.unwrap();
    keyspace(&driver, "tests").await;
    driver.close().await;
    assert!(path.is_file());
}

#[tokio::test]
async fn only_one_of_several_drivers_that_create_the_file_opens_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.redb");
    let mut opened = 0;
    for driver in join_all((0..8).map(|_| open(&path))).await {
        match driver {
            Ok(driver) => {
                keyspace(&driver, "tests").await;
                driver.close().await;
                opened += 1;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}"),
        }
    }
    assert_eq!(opened, 1);
    let left = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 3, "the file, its log, and nothing else");
    open(&path).await.unwrap().close().await;
}

#[tokio::test]
async fn an_unusable_path_is_invalid() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, b"").unwrap();
    for path in [folder.path().to_owned(), file.join("node.redb")] {
        let error = open(&path).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
        assert!(error.to_string().contains(file.parent().unwrap().to_str().unwrap()), "{error:?}");
    }
}

/// These paths ended the node with exit code 4, "start it again". Or the node waited forever:
/// opening a pipe waits for a writer.
#[cfg(unix)]
#[tokio::test]
async fn a_path_that_is_no_file_is_invalid_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (link, pipe) = (folder.path().join("link.redb"), folder.path().join("pipe.redb"));
    std::os::unix::fs::symlink("nowhere.redb", &link).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let cases = [
        (link.as_path(), "a link to nowhere.redb"),
        (&pipe, "a pipe"),
        (Path::new("/dev/null"), "a device"),
        (folder.path(), "a folder"),
        (Path::new(""), "`path`"),
    ];
    for (path, word) in cases {
        for error in [open(path).await.unwrap_err(), check(&RedbConfig::new(path)).unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
            assert!(error.to_string().contains(word), "`{word}` is not in: {error}");
        }
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing was made");
    // A link to a file is as good as the file.
    fs::remove_file(&link).unwrap();
    let file = folder.path().join("node.redb");
    open(&file).await.unwrap().close().await;
    std::os::unix::fs::symlink(&file, &link).unwrap();
    open(&link).await.unwrap().close().await;
}

/// A process that was killed while it made the file left a file of 1 MB or more, and nothing
/// removed that file.
#[tokio::test]
async fn left_over_files_are_removed_and_no_other_files() {
    let folder = tempfile::tempdir().unwrap();
    let left_over = ["node.redb.new-0123456789abcdef", "node.redb.new-0000000000000000"];
    let others =
        ["node.redb.new-1", "node.redb.new-0123456789abcdeg", "x.redb.new-0123456789abcdef"];
    for name in left_over.iter().chain(&others) {
        fs::write(folder.path().join(name), b"x").unwrap();
    }
    let driver = open(&folder.path().join("node.redb")).await.unwrap();
    let mut names: Vec<String> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names.retain(|name| !name.starts_with("node.redb.log-"));
    assert_eq!(names, ["node.redb", others[1], others[0], others[2]]);
    driver.close().await;
}

/// Every user of the machine could read the data of the node.
#[cfg(unix)]
#[tokio::test]
async fn only_its_owner_can_use_the_file() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.redb");
    open(&path).await.unwrap().close().await;
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn a_file_that_is_not_a_redb_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.redb");
    for content in [&b""[..], b"x", b"a letter to grandmother", &[0; 100_000]] {
        fs::write(&path, content).unwrap();
        refused(&path, ErrorKind::Corrupt, "is not a redb file").await;
    }
}

#[tokio::test]
async fn a_redb_file_of_another_program_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.redb");
    let table: TableDefinition<u64, u64> = TableDefinition::new("meta");
    let database = redb::Database::create(&path).unwrap();
    let txn = database.begin_write().unwrap();
    txn.open_table(table).unwrap().insert(1, 2).unwrap();
    txn.commit().unwrap();
    drop(database);
    refused(&path, ErrorKind::Corrupt, "not a storage of this driver").await;
}

fn write_format(path: &Path, format: u32) {
    let meta: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");
    let database = redb::Database::open(path).unwrap();
    let txn = database.begin_write().unwrap();
    txn.open_table(meta).unwrap().insert("format", &format.to_be_bytes()[..]).unwrap();
    txn.commit().unwrap();
    drop(database);
}

#[tokio::test]
async fn a_file_of_another_format_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.redb");
    open(&path).await.unwrap().close().await;
    for (format, made_by) in [
        (1, "the format 1, but this version reads the formats 2 to"),
        (1, "an older version"),
        (6, "a newer version"),
    ] {
        write_format(&path, format);
        refused(&path, ErrorKind::Corrupt, made_by).await;
    }
}

#[tokio::test]
async fn a_second_driver_in_this_process_is_refused_until_the_first_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.redb");
    let first = open(&path).await.unwrap();
    assert_eq!(open(&path).await.unwrap_err().kind(), ErrorKind::Unavailable);
    keyspace(&first, "tests").await;
    first.close().await;
    open(&path).await.unwrap().close().await;
}

/// The driver went on writing to a file that had been removed. Nobody could find the file, and all
/// its data was lost when the process ended.
#[tokio::test]
async fn nothing_is_written_to_a_file_that_was_removed_or_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (path, elsewhere) = (folder.path().join("node.redb"), folder.path().join("other.redb"));
    let driver = open(&path).await.unwrap();
    let rows = keyspace(&driver, "tests").await;
    let put = async |ccols: &str| {
        rows.put(Key::new("p", ccols.to_owned()), Bytes::from("1"), Instant::FAR_FUTURE).await
    };
    let refused = async |ccols: &str| {
        let error = put(ccols).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        let text = error.to_string();
        assert!(text.contains(path.to_str().unwrap()) && text.contains("removed"), "{text}");
    };
    put("there").await.unwrap();
    fs::rename(&path, &elsewhere).unwrap();
    refused("removed").await;
    fs::copy(&elsewhere, &path).unwrap();
    refused("replaced").await;
    // The rows of the file can be read, and the file is still the same when it is back.
    fs::rename(&elsewhere, &path).unwrap();
    put("back").await.unwrap();
    let stored =
        rows.read(Bytes::from("p"), Range::all(), Consistency::Plain, Duration::from_secs(10));
    let stored: Vec<_> = stored.map_ok(|row| row.ccols).try_collect().await.unwrap();
    assert_eq!(stored, ["back", "there"]);
    driver.close().await;
}

#[tokio::test]
async fn keyspaces_come_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.redb");
    let driver = Arc::new(open(&path).await.unwrap());
    let name = KeyspaceName::new("tests").unwrap();
    assert!(driver.open(&name, Instant::FAR_FUTURE).await.unwrap().is_none());
    let created = join_all((0..20).map(|_| driver.create(&name, Instant::FAR_FUTURE))).await;
    assert!(created.iter().all(Result::is_ok));
    let (one, other) = (keyspace(&driver, "tests").await, keyspace(&driver, "other").await);
    let key = Key::new("p", "c");
    one.put(key.clone(), Bytes::from("1"), Instant::FAR_FUTURE).await.unwrap();
    assert_eq!(other.get(&key, Consistency::Plain, Instant::FAR_FUTURE).await.unwrap(), None);

    driver.drop_keyspace(&name, Instant::FAR_FUTURE).await.unwrap();
    driver.drop_keyspace(&name, Instant::FAR_FUTURE).await.unwrap();
    assert!(driver.open(&name, Instant::FAR_FUTURE).await.unwrap().is_none());
    let errors = [
        one.put(key.clone(), Bytes::new(), Instant::FAR_FUTURE).await.unwrap_err(),
        one.get(&key, Consistency::Plain, Instant::FAR_FUTURE).await.unwrap_err(),
    ];
    assert!(errors.iter().all(|error| error.kind() == ErrorKind::Invalid), "{errors:?}");
    assert!(
        driver.open(&name, Instant::FAR_FUTURE).await.unwrap().is_none(),
        "the put did not make it again"
    );
    driver.close().await;

    let driver = open(&path).await.unwrap();
    assert!(driver.open(&name, Instant::FAR_FUTURE).await.unwrap().is_none());
    let name = KeyspaceName::new("other").unwrap();
    assert!(driver.open(&name, Instant::FAR_FUTURE).await.unwrap().is_some());
    driver.close().await;
}

#[tokio::test]
async fn the_largest_row_is_stored_and_found() {
    let folder = tempfile::tempdir().unwrap();
    let driver = open(&folder.path().join("node.redb")).await.unwrap();
    let storage = keyspace(&driver, "tests").await;
    let limits = storage.capabilities().row;
    let key = Key::new(vec![0xff; limits.pkey], vec![0xff; limits.ccols]);
    let value = Bytes::from(vec![7; limits.value]);
    storage.put(key.clone(), value.clone(), Instant::FAR_FUTURE).await.unwrap();
    let got = storage.get(&key, Consistency::Plain, Instant::FAR_FUTURE).await.unwrap();
    assert!(got.is_some_and(|got| got == value));
    for (range, there) in
        [(Range::only(&key.ccols), true), (Range::all().behind(&key.ccols), false)]
    {
        let rows = storage.read(key.pkey.clone(), range, Consistency::Plain, Duration::MAX);
        let rows: Vec<_> = rows.try_collect().await.unwrap();
        assert_eq!(rows.len() == 1, there);
    }
    driver.close().await;
}

#[tokio::test]
async fn a_stream_that_is_not_polled_keeps_no_snapshot_and_continues() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.redb");
    let driver = open(&path).await.unwrap();
    let storage = keyspace(&driver, "tests").await;
    let row = |n: u32| Put {
        key: Key::new("p", n.to_be_bytes().to_vec()),
        value: Bytes::from(vec![1; 100]),
    };
    storage.put_batch((0..10_000).map(row).collect(), Instant::FAR_FUTURE).await.unwrap();
    file_rows(&driver).await;

    let mut rows =
        storage.read(Bytes::from("p"), Range::all(), Consistency::Plain, Duration::from_secs(10));
    for n in 0..1_500_u32 {
        assert_eq!(rows.try_next().await.unwrap().unwrap().ccols, n.to_be_bytes()[..]);
    }
    // The same rows are written again and again. The file grows only if the stream keeps the old
    // pages alive.
    let write = async || {
        storage.put_batch((0..10_000).map(row).collect(), Instant::FAR_FUTURE).await.unwrap();
        file_rows(&driver).await;
    };
    for _ in 0..3 {
        write().await;
    }
    let size = fs::metadata(&path).unwrap().len();
    for _ in 0..5 {
        write().await;
    }
    assert_eq!(fs::metadata(&path).unwrap().len(), size);
    for n in 1_500..10_000_u32 {
        assert_eq!(rows.try_next().await.unwrap().unwrap().ccols, n.to_be_bytes()[..]);
    }
    assert!(rows.try_next().await.unwrap().is_none());
    driver.close().await;
}

#[tokio::test]
async fn no_row_is_lost_between_pages_when_each_key_continues_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let driver = open(&folder.path().join("node.redb")).await.unwrap();
    let storage = keyspace(&driver, "tests").await;
    let row = |n| Put { key: Key::new("p", vec![0; n]), value: Bytes::new() };
    storage.put_batch((0..2_500).map(row).collect(), Instant::FAR_FUTURE).await.unwrap();
    let rows = storage.read(Bytes::from("p"), Range::all(), Consistency::Plain, Duration::MAX);
    let lengths: Vec<usize> = rows.map_ok(|row| row.ccols.len()).try_collect().await.unwrap();
    assert!(lengths.into_iter().eq(0..2_500));
    driver.close().await;
}
