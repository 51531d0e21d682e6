//! Folders where the user lacks rights.

use super::*;

/// Both ways to make the file report the right that the operation on the folder lacks, and so does
/// a later opening.
#[test]
fn a_folder_without_rights_is_reported_with_advice_for_the_folder() {
    for (denied, advice) in [
        (Disk::MakesNoFolder, "the right to write in the folder above it"),
        (Disk::OpensNoFolder, "the rights to read and to write in this folder"),
    ] {
        let (folder, switch) = (tempfile::tempdir().unwrap(), Switch::default());
        let file = |name| {
            let disk = Arc::new(FailingDisk(switch.clone()));
            let config = RedbConfig::new(folder.path().join(name));
            StorageFile::new(config, disk, LogSizes::default())
        };
        let is_told = |refused: Result<()>| {
            let error = refused.unwrap_err().to_string();
            assert!(error.contains(advice), "{denied:?}: {error}");
        };
        let (node, restored) = (file("node.redb"), file("restored.redb"));
        switch.set(denied);
        is_told(restored.make_whole(1, |_| Ok(()), |_, ()| Ok(())));
        is_told(node.open(2).map(drop));
        switch.set(Disk::Works);
        drop(node.open(3).unwrap());
        switch.set(denied);
        is_told(node.open(4).map(drop));
    }
}

/// A sync of the folder failed when a segment of the log got its name. If the driver did not end,
/// it would trust the next sync of the folder, but the failed one may have lost the name.
#[tokio::test]
async fn a_failed_sync_of_the_folder_of_an_open_file_ends_the_driver() {
    let mut node = Node::start().await;
    node.put("before", "1").await.unwrap();
    node.switch.set(Disk::SyncsNoFolder);
    let name = KeyspaceName::new("durable").unwrap();
    let error = node.driver.create(&name, Instant::FAR_FUTURE).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    node.switch.set(Disk::Works);
    assert!(node.driver.failed().now_or_never().is_some());
    assert!(node.put("after", "1").await.is_err());
    node.restart().await;
    assert_eq!(node.get("before").await.unwrap(), Some(Bytes::from("1")));
}

/// The folder could not be opened, for example because the process had too many open files. That
/// counted as a failed sync, and ended the node.
#[tokio::test]
async fn a_folder_that_cannot_be_opened_is_unavailable_until_it_can_be_opened() {
    let node = Node::start().await;
    node.put("before", "1").await.unwrap();
    let name = KeyspaceName::new("durable").unwrap();
    node.switch.set(Disk::OpensNoFolder);
    for _ in 0..2 {
        let error = node.driver.create(&name, Instant::FAR_FUTURE).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        assert!(node.driver.failed().now_or_never().is_none());
    }
    node.switch.set(Disk::Works);
    node.driver.create(&name, Instant::FAR_FUTURE).await.unwrap();
    node.put("after", "1").await.unwrap();
    for row in ["before", "after"] {
        assert_eq!(node.get(row).await.unwrap(), Some(Bytes::from("1")), "row {row}");
    }
}
