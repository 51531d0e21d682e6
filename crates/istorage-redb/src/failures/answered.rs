//! Writes that are answered because the log has them, while redb does not have them yet.

use std::fs;

use super::*;

/// Without a memory cache, redb needs the disk for each commit in memory.
async fn node_without_cache() -> Node {
    let (folder, switch) = (tempfile::tempdir().unwrap(), Switch::default());
    let config = RedbConfig { cache_bytes: 0, ..RedbConfig::new(folder.path().join("node.redb")) };
    Node::start_with(folder, switch, config).await
}

/// A snapshot that began between the answer and the commit in memory was older than the write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_behind_an_answer_sees_the_write() {
    let node = Node::start().await;
    for n in 0..3_000 {
        let value = Bytes::from(n.to_string());
        node.storage.put(key("row"), value.clone(), Instant::FAR_FUTURE).await.unwrap();
        assert_eq!(node.get("row").await.unwrap(), Some(value));
    }
}

/// The log has the write, so the file has it when it is opened again. Until then no read shows the
/// file without it.
#[tokio::test]
async fn a_write_that_redb_fails_to_commit_in_memory_stays_answered() {
    let node = node_without_cache().await;
    node.switch.set(Disk::GoneAfterLogSync);
    node.put("answered", "1").await.unwrap();
    for error in [node.get("answered").await.map(drop), node.put("later", "1").await] {
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    node.switch.set(Disk::Works);
    node.put("later", "1").await.unwrap();
    assert_eq!(node.get("answered").await.unwrap(), Some(Bytes::from("1")));
}

/// The file stayed open, because it had no name when the commit failed. The next durable commit
/// named a place after the frame of the answered write, so the write was lost.
#[tokio::test]
async fn a_file_that_was_moved_when_the_commit_failed_keeps_answered_writes() {
    let mut node = node_without_cache().await;
    let elsewhere = node.folder.path().join("elsewhere");
    node.switch.move_after_log_sync(&node.path, &elsewhere);
    node.switch.set(Disk::PanicsAfterLogSync);
    node.put("answered", "1").await.unwrap();
    for error in [node.get("answered").await.map(drop), node.put("later", "1").await] {
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    fs::rename(&elsewhere, &node.path).unwrap();
    // This write opens the file again, unless the read above has done so by now.
    if let Err(error) = node.put("later", "1").await {
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        node.put("later", "1").await.unwrap();
    }
    assert_eq!(node.get("answered").await.unwrap(), Some(Bytes::from("1")));
    node.restart().await;
    assert_eq!(node.get("answered").await.unwrap(), Some(Bytes::from("1")));
}
