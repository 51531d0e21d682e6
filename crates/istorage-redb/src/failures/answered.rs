//! Writes that are answered because the log has them, while the storage file does not have them
//! yet.

use std::fs;

use super::*;

/// A node with small tables, so that its storage file soon needs them.
async fn small_node() -> Node {
    let (folder, switch) = (tempfile::tempdir().unwrap(), Switch::default());
    let config = RedbConfig::new(folder.path().join("node.redb"));
    let sizes = LogSizes { segment: 16 << 10, growth: 4 << 10 };
    Node::start_sized(folder, switch, config, sizes).await
}

fn row(n: u32) -> Key {
    Key::new("p", n.to_be_bytes().to_vec())
}

impl Node {
    async fn put_row(&self, n: u32) -> Result<()> {
        self.storage.put(row(n), Bytes::from(vec![1; 700]), Instant::FAR_FUTURE).await
    }

    /// Writes rows until one is refused. Returns the number of rows, and the error.
    async fn fill(&self, from: u32) -> (u32, istorage::Error) {
        for n in from..from + 1_000 {
            if let Err(error) = self.put_row(n).await {
                return (n, error);
            }
        }
        panic!("the tables have no bound");
    }

    async fn has_row(&self, n: u32) -> bool {
        let there = self.storage.get(&row(n), Consistency::Plain, Instant::FAR_FUTURE).await;
        there.unwrap().is_some()
    }

    async fn has_rows(&self, count: u32) {
        for n in 0..count {
            assert!(self.has_row(n).await, "row {n} of {count}");
        }
    }
}

/// A snapshot that began between the answer and the moment when its rows are shown was older than
/// the write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_behind_an_answer_sees_the_write() {
    let node = small_node().await;
    for n in 0..3_000 {
        let value = Bytes::from(n.to_string());
        node.storage.put(key("row"), value.clone(), Instant::FAR_FUTURE).await.unwrap();
        assert_eq!(node.get("row").await.unwrap(), Some(value));
    }
}

/// The storage file fails, and its log does not: writes go on until the tables are full. Then they
/// are refused, and all that was answered stays and can be read.
#[tokio::test]
async fn a_storage_file_that_fails_loses_no_answered_write_and_bounds_the_tables() {
    for disk in [Disk::FileIsGone, Disk::Full, Disk::FileIsFull] {
        let mut node = small_node().await;
        // Both files of the log get their space.
        for n in 0..200 {
            node.put_row(n).await.unwrap();
        }
        node.switch.set(disk);
        let (rows, error) = node.fill(200).await;
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{disk:?}: {error:?}");
        assert!((201..320).contains(&rows), "{disk:?}: {rows} rows");
        assert!(node.has_row(rows - 1).await, "{disk:?}: rows in memory can be read");
        for _ in 0..3 {
            assert!(node.put_row(rows).await.is_err(), "{disk:?}");
        }
        assert!(node.driver.failed().now_or_never().is_none(), "{disk:?}");
        let errors = logs::of(&node.path).into_iter().filter(|line| line.starts_with("ERROR"));
        assert!((1..=2).contains(&errors.count()), "{:?}", logs::of(&node.path));
        node.switch.set(Disk::Works);
        for n in rows..rows + 200 {
            node.put_row(n).await.unwrap();
        }
        node.has_rows(rows + 200).await;
        node.restart().await;
        node.has_rows(rows + 200).await;
    }
}

/// The same, and the node ends before the storage file works again. The next one repeats the rows
/// of both segments from the log.
#[tokio::test]
async fn both_segments_are_repeated_after_a_crash() {
    let mut node = small_node().await;
    for n in 0..50 {
        node.put_row(n).await.unwrap();
    }
    node.switch.set(Disk::FileIsGone);
    let (rows, _) = node.fill(50).await;
    node.restart_on(Disk::Works).await;
    node.has_rows(rows).await;
    assert!(!node.has_row(rows).await, "a refused row");
    for n in rows..rows + 100 {
        node.put_row(n).await.unwrap();
    }
    node.restart().await;
    node.has_rows(rows + 100).await;
}

/// Without the delays, writers would run into the bound and stand still for a whole filing; with
/// them a leader could lose its lease.
#[tokio::test]
async fn writes_are_slowed_before_the_tables_are_full_and_a_lease_is_not() {
    let (folder, switch) = (tempfile::tempdir().unwrap(), Switch::default());
    let config = RedbConfig::new(folder.path().join("node.redb"));
    let sizes = LogSizes { segment: 1 << 20, growth: 64 << 10 };
    let node = Node::start_sized(folder, switch, config, sizes).await;
    node.switch.set(Disk::FileStandsStill);
    // The writer waits in the time of the machine. The clock of the node stands still.
    let clock = Clock::system();
    let put = async |n| {
        let (started, value) = (clock.now(), Bytes::from(vec![1; 100_000]));
        node.storage.put(row(n), value, Instant::FAR_FUTURE).await.unwrap();
        clock.now() - started
    };
    // Eleven rows fill the first table. At the bound, after about 25 more, a write would wait for
    // the filer, and that for the disk.
    let mut last = Duration::ZERO;
    for n in 0..31 {
        last = put(n).await;
    }
    assert!(last >= Duration::from_millis(50), "the last write took {last:?}");
    let mut leases = Vec::new();
    for name in ["1", "2", "3"] {
        let started = clock.now();
        assert!(node.insert(name, "lease").await.unwrap().is_applied());
        leases.push(clock.now() - started);
    }
    // One of them may meet a slow machine.
    assert!(leases.iter().any(|took| *took < Duration::from_millis(50)), "{leases:?}");
    node.switch.set(Disk::Works);
    node.has_rows(31).await;
}

/// A file without its name takes no writes, and an operator can bring it back.
#[tokio::test]
async fn a_file_that_was_moved_and_brought_back_has_all_answered_writes() {
    let mut node = small_node().await;
    let elsewhere = node.folder.path().join("elsewhere");
    for n in 0..30 {
        node.put_row(n).await.unwrap();
    }
    fs::rename(&node.path, &elsewhere).unwrap();
    let error = node.put_row(30).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    node.has_rows(30).await;
    fs::rename(&elsewhere, &node.path).unwrap();
    for n in 30..100 {
        node.put_row(n).await.unwrap();
    }
    node.restart().await;
    node.has_rows(100).await;
}

/// A keyspace that was made later, by a filing that was tried again, would be there although its
/// caller had the answer that nothing was done.
#[tokio::test]
async fn a_keyspace_that_was_refused_is_not_made_later() {
    let node = small_node().await;
    node.put("row", "1").await.unwrap();
    let name = KeyspaceName::new("later").unwrap();
    node.switch.set(Disk::FileIsGone);
    let error = node.driver.create(&name, Instant::FAR_FUTURE).await.unwrap_err();
    let is_unknown = error.kind() == ErrorKind::OutcomeUnknown;
    assert!(is_unknown || error.kind() == ErrorKind::Unavailable, "{error:?}");
    node.switch.set(Disk::Works);
    for n in 0..100 {
        node.put_row(n).await.unwrap();
    }
    let is_there = node.driver.open(&name, Instant::FAR_FUTURE).await.unwrap().is_some();
    assert!(is_unknown || !is_there, "it was refused");
    node.driver.create(&name, Instant::FAR_FUTURE).await.unwrap();
    assert!(node.driver.open(&name, Instant::FAR_FUTURE).await.unwrap().is_some());
}

/// Nobody knew whether the keyspace was dropped, and writes to it went on. Then the drop was tried
/// again, and an answered write was gone.
#[tokio::test]
async fn a_write_waits_until_a_drop_of_unknown_outcome_is_done_or_given_up() {
    let node = small_node().await;
    node.put_row(0).await.unwrap();
    node.switch.set(Disk::FileIsGone);
    let name = KeyspaceName::new("tests").unwrap();
    let error = node.driver.drop_keyspace(&name, Instant::FAR_FUTURE).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error:?}");
    let refused = node.put_row(1).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused:?}");
    node.switch.set(Disk::Works);
    let refused = node.put_row(2).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "it has no keyspace: {refused:?}");
    assert!(node.driver.open(&name, Instant::FAR_FUTURE).await.unwrap().is_none());
}

/// The close moved the last rows into the file, and reads that were sent before it found no
/// snapshot that went with the tables: they failed, as if the file had failed.
#[tokio::test]
async fn reads_that_were_sent_before_a_close_are_answered() {
    let node = small_node().await;
    for n in 0..20 {
        node.put_row(n).await.unwrap();
    }
    let keys: Vec<Key> = (0..1_000).map(row).collect();
    let read = || node.storage.get_batch(&keys, Instant::FAR_FUTURE);
    let mut reads = join_all((0..300).map(|_| read()));
    // The first poll sends all reads. They take longer than the close.
    assert!((&mut reads).now_or_never().is_none());
    node.driver.close().await;
    for rows in reads.await {
        assert_eq!(rows.unwrap().iter().flatten().count(), 20);
    }
}

/// Waiting for the filer may take long. A request whose caller no longer waited, or whose deadline
/// had passed, must not be written afterwards.
#[tokio::test]
async fn a_request_that_is_dropped_or_late_while_the_tables_are_full_is_never_written() {
    let node = small_node().await;
    node.switch.set(Disk::FileIsGone);
    let (rows, _) = node.fill(0).await;
    // The next write waits for a try of the filer, and that for its sync.
    node.switch.set(Disk::StandsStill);
    let deadline = node.now() + Duration::from_secs(5);
    let mut dropped = Box::pin(node.put_row(rows));
    assert!((&mut dropped).now_or_never().is_none());
    let late = row(rows + 1);
    let mut late = Box::pin(node.storage.put(late, Bytes::new(), deadline));
    assert!((&mut late).now_or_never().is_none());
    node.switch.wait_for_sync();
    drop(dropped);
    node.clock.advance(Duration::from_secs(60));
    node.switch.set(Disk::Works);
    late.await.unwrap_err();
    node.put_row(rows + 2).await.unwrap();
    for (n, is_there) in [(rows, false), (rows + 1, false), (rows + 2, true)] {
        assert_eq!(node.has_row(n).await, is_there, "row {n}");
    }
    node.has_rows(rows).await;
}

/// The storage file failed, and an older copy of it was put in its place. The node went on with the
/// copy, and the rows between the copy and the log were lost.
#[tokio::test]
async fn another_state_of_the_file_in_its_place_is_refused() {
    let node = small_node().await;
    let (copy, own) = (node.folder.path().join("copy"), node.folder.path().join("own"));
    node.put_row(0).await.unwrap();
    fs::copy(&node.path, &copy).unwrap();
    for n in 1..200 {
        node.put_row(n).await.unwrap();
    }
    // The file is closed when it fails, and opened again when it can be.
    node.switch.set(Disk::FileIsGone);
    let (rows, _) = node.fill(200).await;
    fs::rename(&node.path, &own).unwrap();
    fs::rename(&copy, &node.path).unwrap();
    node.switch.set(Disk::Works);
    for _ in 0..3 {
        assert_eq!(node.put_row(rows).await.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    let lines = logs::of(&node.path);
    assert!(lines.iter().any(|line| line.contains("is not as this node left it")), "{lines:?}");
    fs::rename(&own, &node.path).unwrap();
    for n in rows..rows + 100 {
        node.put_row(n).await.unwrap();
    }
    node.has_rows(rows + 100).await;
}

/// A write to the log failed, and the place after the last frame could not be cleaned. The next
/// segment began behind it, and after a crash the log was refused as damaged.
#[tokio::test]
async fn nothing_is_written_or_read_behind_a_frame_that_may_be_there() {
    let mut node = small_node().await;
    for n in 0..50 {
        node.put_row(n).await.unwrap();
    }
    node.switch.set(Disk::LogWritesFail);
    for _ in 0..3 {
        assert!(node.put_row(50).await.is_err());
        let name = KeyspaceName::new("later").unwrap();
        assert!(node.driver.create(&name, Instant::FAR_FUTURE).await.is_err());
        let read = node.storage.get(&row(0), Consistency::Plain, Instant::FAR_FUTURE).await;
        assert_eq!(read.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    node.switch.set(Disk::Works);
    for n in 51..100 {
        node.put_row(n).await.unwrap();
    }
    assert!(!node.has_row(50).await, "its outcome was settled");
    node.restart().await;
    assert!(node.has_row(49).await && !node.has_row(50).await && node.has_row(99).await);
}

/// At most 4,096 expired rows went with each table, however many came.
#[tokio::test]
async fn expired_rows_go_as_fast_as_they_come() {
    let node = small_node().await;
    let (ttl, mut longest) = (Some(Duration::from_secs(1)), 0);
    for round in 0..60_u32 {
        for n in 0..40 {
            let key = Key::new("p", (round * 40 + n).to_be_bytes().to_vec());
            let value = Bytes::from(vec![1; 300]);
            let inserted = node.storage.insert_if_not_exists(key, value, ttl, Instant::FAR_FUTURE);
            assert!(inserted.await.unwrap().is_applied());
        }
        node.clock.advance(Duration::from_secs(2));
        if round == 10 {
            longest = fs::metadata(&node.path).unwrap().len();
        }
    }
    node.driver.close().await;
    let len = fs::metadata(&node.path).unwrap().len();
    assert!(len <= longest * 2, "the file grew from {longest} to {len} bytes");
}

/// Removing expired rows failed on a full disk, and was tried again at once, without end: the file
/// was opened thousands of times a second.
#[tokio::test]
async fn expired_rows_that_cannot_be_removed_open_the_file_seldom() {
    let node = small_node().await;
    let ttl = Some(Duration::from_secs(1));
    for n in 0..100 {
        let value = Bytes::from(vec![1; 700]);
        let inserted = node.storage.insert_if_not_exists(row(n), value, ttl, Instant::FAR_FUTURE);
        assert!(inserted.await.unwrap().is_applied());
    }
    // The file has the rows of the log then.
    let name = KeyspaceName::new("other").unwrap();
    node.driver.create(&name, Instant::FAR_FUTURE).await.unwrap();
    let opened = node.switch.opened();
    node.switch.set(Disk::Full);
    node.clock.advance(Duration::from_secs(2));
    Clock::system().sleep(Duration::from_secs(3)).await;
    let opened = node.switch.opened() - opened;
    assert!((1..10).contains(&opened), "{opened} times in three seconds");
}
