//! A disk that is full.

use tck::trial::finding_of;

use super::{disk::HIDES_FULL, *};

/// A value that is too large for the log's space on a full disk.
fn large() -> Bytes {
    Bytes::from(vec![1; 400_000])
}

#[tokio::test]
async fn a_full_disk_is_reported_and_writes_succeed_when_there_is_space_again() {
    let node = Node::start().await;
    node.put("before", "1").await.unwrap();
    node.switch.set(Disk::Full);
    node.put("small", "1").await.expect("the log has its space already");
    for _ in 0..3 {
        let put = node.storage.put(key("during"), large(), Instant::FAR_FUTURE);
        let error = put.await.expect_err("there was no space for the write");
        assert!(error.to_string().contains("the disk is full"), "{error:?}");
        assert_ne!(error.kind(), ErrorKind::Corrupt, "{error:?}");
        for row in ["before", "small"] {
            let read = node.get(row).await.unwrap();
            assert_eq!(read, Some(Bytes::from("1")), "a full disk can be read");
        }
    }
    node.switch.set(Disk::Works);
    node.put("after", "1").await.unwrap();
    for row in ["before", "small", "after"] {
        assert_eq!(node.get(row).await.unwrap(), Some(Bytes::from("1")), "row {row}");
    }
}

/// The driver logged each attempt of a write as a failure. The driver also logged each opening of
/// the file as the end of the failure, although nothing had been written.
#[tokio::test]
async fn a_full_disk_is_logged_once_and_its_end_when_a_write_succeeds() {
    let node = Node::start().await;
    let logged = || logs::of(&node.path);
    node.put("before", "1").await.unwrap();
    assert_eq!(logged(), Vec::<String>::new());
    node.switch.set(Disk::Full);
    for _ in 0..3 {
        node.storage.put(key("during"), large(), Instant::FAR_FUTURE).await.unwrap_err();
        node.get("before").await.unwrap();
    }
    let [line] = &logged()[..] else { panic!("{:?}", logged()) };
    assert!(line.starts_with("ERROR") && line.contains("the disk is full"), "{line}");
    node.switch.set(Disk::Works);
    node.get("before").await.unwrap();
    assert_eq!(logged().len(), 1, "a read proves nothing: {:?}", logged());
    node.clock.advance(Duration::from_secs(7));
    node.put("after", "1").await.unwrap();
    node.put("after", "2").await.unwrap();
    let [_, line] = &logged()[..] else { panic!("{:?}", logged()) };
    assert!(line.contains("works again: a write succeeded"), "{line}");
    assert!(line.contains("failed_for=7s"), "{line}");
}

/// The storage file has no space of its own before its pages are written. So the log takes writes
/// on a full disk until the tables in memory are full. Only a log that could not grow was tested.
#[tokio::test]
async fn a_full_segment_on_a_full_disk_loses_nothing_that_was_acknowledged() {
    let sizes = LogSizes { segment: 64 << 10, growth: 64 << 10 };
    let switch = Switch::default();
    let folder = tempfile::tempdir().unwrap();
    let config = RedbConfig::new(folder.path().join("node.redb"));
    let mut node = Node::start_sized(folder, switch.clone(), config, sizes).await;
    let row = |n: u32| Key::new("p", n.to_be_bytes().to_vec());
    let put = async |node: &Node, n| {
        node.storage.put(row(n), Bytes::from(vec![1; 700]), Instant::FAR_FUTURE).await
    };
    let check = async |node: &Node, acknowledged: u32| {
        for n in 0..acknowledged {
            let there = node.storage.get(&row(n), Consistency::Plain, Instant::FAR_FUTURE).await;
            assert!(there.unwrap().is_some(), "row {n} of {acknowledged}");
        }
    };
    // Several segments, so that both files of the log have their space.
    let mut acknowledged = 0;
    while acknowledged < 200 {
        put(&node, acknowledged).await.unwrap();
        acknowledged += 1;
    }
    switch.set(Disk::Full);
    let error = loop {
        match put(&node, acknowledged).await {
            Ok(()) if acknowledged < 600 => acknowledged += 1,
            Ok(()) => panic!("{acknowledged} rows are answered, and the disk is full"),
            Err(error) => break error,
        }
    };
    assert!((201..600).contains(&acknowledged), "{acknowledged} rows");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    check(&node, acknowledged).await;
    for _ in 0..2 {
        put(&node, acknowledged).await.unwrap_err();
        check(&node, acknowledged).await;
    }
    assert!(node.driver.failed().now_or_never().is_none());
    switch.set(Disk::Works);
    for n in acknowledged..acknowledged + 100 {
        put(&node, n).await.unwrap();
    }
    acknowledged += 100;
    check(&node, acknowledged).await;
    node.restart().await;
    check(&node, acknowledged).await;
}

/// A driver that does not notice that the disk is full answers writes that are lost.
#[test]
fn a_full_disk_that_is_not_noticed_is_found() {
    let tests: [(fn(), &str); 2] = [
        (
            a_full_disk_is_reported_and_writes_succeed_when_there_is_space_again,
            "there was no space for the write",
        ),
        (
            a_full_segment_on_a_full_disk_loses_nothing_that_was_acknowledged,
            "rows are answered, and the disk is full",
        ),
    ];
    for (test, expected) in tests {
        HIDES_FULL.set(true);
        let found = finding_of(async { test() }).now_or_never().flatten();
        HIDES_FULL.set(false);
        assert!(found.as_ref().is_some_and(|found| found.contains(expected)), "{found:?}");
    }
}
