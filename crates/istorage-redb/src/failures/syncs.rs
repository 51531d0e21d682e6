//! Syncs that fail, and the time that a close writes.

use super::*;

/// The last sync of a durable commit is the one that begins the new segment of the log. When that
/// sync failed, the driver looked for the former segment under the name of the new one, and took
/// the log for removed. Then it did not close the file: it refused all writes, and went on to
/// answer reads by a time that was not in the file. So a lease that had expired appeared again when
/// another driver opened the file.
#[tokio::test]
async fn each_sync_of_a_durable_commit_that_fails_ends_the_driver_and_its_reads() {
    for works in 0.. {
        let mut node = Node::start().await;
        node.put("before", "1").await.unwrap();
        node.switch.set(Disk::FailsToSyncAfter(works));
        let name = KeyspaceName::new("durable").unwrap();
        let created = node.driver.create(&name, Instant::FAR_FUTURE).await;
        node.switch.set(Disk::Works);
        if created.is_ok() {
            assert!(works > 2, "the segment, the pages, and the beginning of the segment");
            break;
        }
        assert!(node.driver.failed().now_or_never().is_some(), "sync {works}");
        for answer in [node.get("before").await.map(drop), node.put("after", "1").await] {
            let error = answer.expect_err("a driver that failed answers no call");
            assert_eq!(error.kind(), ErrorKind::Unavailable, "sync {works}: {error:?}");
        }
        node.restart().await;
        assert_eq!(node.get("before").await.unwrap(), Some(Bytes::from("1")));
    }
}

/// The commit of an opening has the rows of the log. When it failed, the opening was answered as a
/// write of unknown outcome.
#[tokio::test]
async fn an_opening_whose_sync_fails_is_unavailable() {
    for works in 0.. {
        let node = Node::start().await;
        node.put("before", "1").await.unwrap();
        node.switch.set(Disk::FileIsGone);
        node.driver.close().await;
        node.switch.set(Disk::FailsToSyncAfter(works));
        match node.opened().await {
            Ok(_) => {
                assert!(works > 3, "the header of the segment, and the commit");
                break;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}"),
        }
    }
}

/// The close writes the time into the file, so the next driver goes on from it.
#[tokio::test]
async fn a_lease_that_is_over_is_not_seen_again_after_a_close() {
    let mut node = Node::start().await;
    let (ttl, value) = (Duration::from_secs(10), Bytes::from("holder"));
    let inserted =
        node.storage.insert_if_not_exists(key("lease"), value, Some(ttl), Instant::FAR_FUTURE);
    assert!(inserted.await.unwrap().is_applied());
    node.clock.advance(ttl);
    assert_eq!(node.get("lease").await.unwrap(), None);
    node.restart().await;
    assert_eq!(node.get("lease").await.unwrap(), None);
}
