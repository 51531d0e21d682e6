//! Tests of pages that cannot be read, and of a disk where nothing can be read.

use super::*;

impl Node {
    /// Makes a node with the rows `bad` and `good`. The row `bad` cannot be read. redb has neither
    /// row in memory.
    async fn with_a_bad_sector() -> Node {
        let mut node = Node::start().await;
        for (row, byte) in [("bad", 7), ("good", 8)] {
            let put = Put { key: key(row), value: Bytes::from(vec![byte; 10_000]) };
            node.storage.put_batch(vec![put], Instant::FAR_FUTURE).await.unwrap();
        }
        node.restart().await;
        node.switch.fail_reads_of(node.place_of(7));
        node
    }

    /// The place in the file of the row that has these bytes.
    fn place_of(&self, byte: u8) -> u64 {
        let file = std::fs::read(&self.path).unwrap();
        let place = file.windows(10_000).position(|bytes| bytes == vec![byte; 10_000]);
        place.expect("the row is in the file") as u64
    }

    /// Asserts that the call failed because of the row `bad`.
    fn is_damaged(&self, answer: Result<()>) {
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
        let text = error.to_string();
        assert!(text.contains("0x70/0x626164") && text.contains("cannot be read"), "{text}");
    }
}

/// After one failed read, redb answers nothing any more: one bad sector made every row unavailable.
#[tokio::test]
async fn a_page_that_cannot_be_read_fails_the_calls_on_its_rows_and_no_others() {
    let node = Node::with_a_bad_sector().await;
    for _ in 0..3 {
        node.is_damaged(node.get("bad").await.map(drop));
        assert!(node.get("good").await.unwrap().is_some());
        node.is_damaged(node.insert("bad", "2").await.map(drop));
        node.put("other", "1").await.unwrap();
    }
    assert!(node.driver.failed().now_or_never().is_none());
    let lines = logs::of(&node.path);
    assert!(lines.is_empty(), "the file as a whole works: {lines:?}");
    // A sector that the disk can read again is no damage.
    node.switch.fail_reads_of(u64::MAX);
    assert!(node.get("bad").await.unwrap().is_some());
}

/// Each write of a damaged row opened the file again, while all other writes waited, and logged the
/// damage.
#[tokio::test]
async fn a_row_on_a_damaged_page_is_refused_without_opening_the_file_again() {
    let node = Node::with_a_bad_sector().await;
    let opened = node.switch.opened();
    for _ in 0..5 {
        node.is_damaged(node.insert("bad", "2").await.map(drop));
        node.is_damaged(node.put("bad", "2").await);
    }
    assert_eq!(node.switch.opened(), opened);
    // A keyspace that is made again has no such row.
    let name = KeyspaceName::new("tests").unwrap();
    node.switch.fail_reads_of(u64::MAX);
    node.driver.drop_keyspace(&name, Instant::FAR_FUTURE).await.unwrap();
    node.driver.create(&name, Instant::FAR_FUTURE).await.unwrap();
    assert!(node.insert("bad", "2").await.unwrap().is_applied());
}

/// After one failed write of a row, the driver refused the row until the node was started again,
/// even if the disk could read the row again. If the row was a lease, the node ended.
#[tokio::test]
async fn a_row_that_the_disk_can_read_again_can_be_written() {
    let node = Node::with_a_bad_sector().await;
    node.is_damaged(node.put("bad", "2").await);
    node.switch.fail_reads_of(u64::MAX);
    for row in ["bad", "good"] {
        node.put(row, "3").await.unwrap();
        assert_eq!(node.get(row).await.unwrap(), Some(Bytes::from("3")));
    }
}

/// A row that is put over a damaged row was answered, and no later row could be brought into the
/// file: the page stood in the way.
#[tokio::test]
async fn a_request_with_a_damaged_row_is_refused_as_a_whole() {
    let mut node = Node::with_a_bad_sector().await;
    let put = |row| Put { key: key(row), value: Bytes::from("3") };
    let both = node.storage.put_batch(vec![put("good"), put("bad")], Instant::FAR_FUTURE).await;
    node.is_damaged(both);
    assert_eq!(node.get("good").await.unwrap(), Some(Bytes::from(vec![8; 10_000])));
    node.put("other", "1").await.unwrap();
    node.restart().await;
    node.switch.fail_reads_of(u64::MAX);
    assert_eq!(node.get("other").await.unwrap(), Some(Bytes::from("1")));
    assert_eq!(node.get("good").await.unwrap(), Some(Bytes::from(vec![8; 10_000])));
}

/// The disk could not read a sector while the file was opened. The driver took the file for
/// damaged, and the node ended with the exit code for a mistake that an operator must correct. But
/// the disk may be able to read the sector a moment later.
#[tokio::test]
async fn an_unreadable_page_at_opening_is_unavailable_and_no_damage() {
    let mut node = Node::start().await;
    node.put("a", "1").await.unwrap();
    let mut unreadable = 0;
    for page in 0..std::fs::metadata(&node.path).unwrap().len() / 4_096 {
        node.driver.close().await;
        node.switch.fail_reads_of(page * 4_096);
        let disk = Arc::new(FailingDisk(node.switch.clone()));
        let opened = RedbDriver::open_on(
            RedbConfig::new(&node.path),
            node.clock.clock(),
            disk,
            LogSizes::default(),
        )
        .await;
        node.switch.fail_reads_of(u64::MAX);
        match opened {
            Ok(driver) => driver.close().await,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "page {page}: {error}");
                unreadable += 1;
            }
        }
        node.restart().await;
    }
    assert!(unreadable >= 2, "only {unreadable} pages are needed to open the file");
    assert_eq!(node.get("a").await.unwrap(), Some(Bytes::from("1")));
}

/// The driver read the first page of the file to find out whether the disk is there. The system had
/// that page in memory, so a disk that was gone looked as if it worked.
#[tokio::test]
async fn a_disk_that_is_gone_makes_everything_unavailable_until_it_is_back() {
    let node = Node::with_a_bad_sector().await;
    node.switch.fail_reads_of(u64::MAX);
    node.switch.set(Disk::Gone);
    for _ in 0..3 {
        assert_eq!(node.get("bad").await.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    node.switch.set(Disk::Works);
    // There are no writes. The failed read makes the filer open the file again.
    let mut answer = node.get("bad").await;
    for _ in 0..1_000 {
        if answer.is_ok() {
            break;
        }
        Clock::system().sleep(Duration::from_millis(5)).await;
        answer = node.get("bad").await;
    }
    assert_eq!(answer.unwrap(), Some(Bytes::from(vec![7; 10_000])));
    node.put("a", "3").await.unwrap();
}

/// How often the node log says that expired rows stay in the file.
fn given_up(node: &Node) -> usize {
    let lines = logs::of(&node.path);
    lines.iter().filter(|line| line.contains("expired rows are no longer removed")).count()
}

/// Another driver on the file of a node, which keeps no pages in memory.
async fn without_cache(mut node: Node) -> Node {
    let config = RedbConfig { cache_bytes: 0, ..RedbConfig::new(node.path.clone()) };
    node.restart_with(config).await;
    node
}

/// A node whose file has a row and the lease `first`, and which keeps no pages in memory.
async fn with_a_lease() -> Node {
    let node = Node::start().await;
    node.put("row", "1").await.unwrap();
    let written = node.storage.write_atomic(lease("first"), Instant::FAR_FUTURE).await.unwrap();
    assert!(written.is_applied());
    without_cache(node).await
}

/// The place of the entry of a lease in the index of the rows that expire: a moment and the key of
/// the row, without its value.
fn place_of_entry(path: &std::path::Path, row: &str) -> u64 {
    let (file, entry) = (std::fs::read(path).unwrap(), [b"\0\x01p", row.as_bytes()].concat());
    let is_value = |at: usize| file[at..].iter().take(200).filter(|byte| **byte == 9).count() > 50;
    let place = (0..file.len()).find(|at| file[*at..].starts_with(&entry) && !is_value(*at));
    place.unwrap() as u64
}

fn lease(row: &'static str) -> AtomicBatch {
    let ttl = Some(Duration::from_secs(3_600));
    let value = Bytes::from(vec![9; 10_000]);
    let ccols = Bytes::from(row);
    let insert = Conditional::Insert { ccols, value, ttl };
    AtomicBatch { conditionals: vec![(Bytes::from("p"), insert)], ..AtomicBatch::default() }
}

/// A page of the index of the rows that expire cannot be read: rows are filed without the index,
/// and the node log says once what follows.
#[tokio::test]
async fn a_bad_page_of_the_expiry_index_is_reported_once() {
    let node = with_a_lease().await;
    node.switch.fail_reads_of(place_of_entry(&node.path, "first"));
    for n in ["second", "third"] {
        assert!(
            node.storage.write_atomic(lease(n), Instant::FAR_FUTURE).await.unwrap().is_applied()
        );
        let name = KeyspaceName::new(n).unwrap();
        node.driver.create(&name, Instant::FAR_FUTURE).await.unwrap();
    }
    assert_eq!(given_up(&node), 1, "{:?}", logs::of(&node.path));
}

/// A page of the rows was damaged, so the rows of the log could not be filed. The node log said
/// that the index was given up, which was whole.
#[tokio::test]
async fn damaged_rows_are_not_reported_as_a_damaged_index() {
    let node = Node::start().await;
    node.put("row", "1").await.unwrap();
    let node = without_cache(node).await;
    // The log has this write, and the file has not.
    node.put("row", "2").await.unwrap();
    node.switch.set(Disk::FileIsGone);
    node.driver.close().await;
    node.switch.set(Disk::Works);
    let mut file = std::fs::read(&node.path).unwrap();
    let place = file.windows(6).position(|bytes| bytes == b"\0\x01prow").unwrap();
    file[place / 4_096 * 4_096..][..4_096].fill(0);
    std::fs::write(&node.path, file).unwrap();
    let error = node.opened().await.expect_err("the rows of the log cannot be filed");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
    assert_eq!(given_up(&node), 0, "{:?}", logs::of(&node.path));
}

/// A row could not be filed, because the disk could not read the former row once. The index was
/// given up for it, and rows that expired later stayed in the file.
#[tokio::test]
async fn a_bad_page_of_rows_does_not_end_the_removal_of_expired_rows() {
    let node = without_cache(Node::with_a_bad_sector().await).await;
    node.switch.fail_reads_of(u64::MAX);
    node.put("bad", "2").await.unwrap();
    node.switch.fail_reads_of(node.place_of(7));
    let name = KeyspaceName::new("other").unwrap();
    node.driver.create(&name, Instant::FAR_FUTURE).await.unwrap_err();
    node.switch.fail_reads_of(u64::MAX);
    node.driver.create(&name, Instant::FAR_FUTURE).await.unwrap();
    assert_eq!(given_up(&node), 0, "{:?}", logs::of(&node.path));
}

/// The filer opens the file again after damage. A file that has lost its name must stay open: after
/// closing, nobody could bring it back.
#[tokio::test]
async fn a_file_without_its_name_stays_open_when_its_expiry_index_is_damaged() {
    let node = with_a_lease().await;
    let place = place_of_entry(&node.path, "first");
    std::fs::rename(&node.path, node.folder.path().join("elsewhere")).unwrap();
    node.switch.fail_reads_of(place);
    let clock = Clock::system();
    let end = clock.now() + Duration::from_secs(20);
    while given_up(&node) == 0 {
        assert!(clock.now() < end, "the filer looks at the index when it rests");
        clock.sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(node.get("row").await.unwrap(), Some(Bytes::from("1")));
}
