//! Test of the pages of a file that Linux has in memory.

use std::{fs::File, io::IoSliceMut, path::Path};

use bytes::Bytes;
use clock::{Clock, Instant};
use istorage::{AppStorageExt, Consistency, Key, KeyspaceName, StorageDriver};
use rustix::{
    fs::{Advice, fadvise},
    io::{ReadWriteFlags, preadv2},
};

use crate::{RedbConfig, RedbDriver};

const MIB: usize = 1 << 20;

/// Whether the system has this place of a file in memory.
fn is_in_memory(path: &Path, at: usize) -> bool {
    let (file, mut bytes) = (File::open(path).unwrap(), [0; 512]);
    let bytes = &mut [IoSliceMut::new(&mut bytes)];
    preadv2(&file, bytes, at as u64, ReadWriteFlags::NOWAIT).is_ok()
}

/// Whether the file system of a folder is on a disk, and can tell which pages are in memory.
fn can_forget(folder: &Path) -> bool {
    let path = folder.join("probe");
    std::fs::write(&path, vec![1; 8 * MIB]).unwrap();
    let file = File::open(&path).unwrap();
    file.sync_all().unwrap();
    let was_in_memory = is_in_memory(&path, 4 * MIB);
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    was_in_memory && !is_in_memory(&path, 4 * MIB)
}

/// After a sync that failed, Linux shows pages that it did not write and will never write. A node
/// that was started again read those pages.
#[tokio::test]
async fn a_file_that_is_opened_is_read_from_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    if !can_forget(folder.path()) {
        println!("{} keeps its files in memory", folder.path().display());
        return;
    }
    let path = folder.path().join("node.redb");
    let open = || RedbDriver::open(RedbConfig::new(&path), Clock::system());
    let (name, key) = (KeyspaceName::new("tests").unwrap(), Key::new("p", "row"));
    let value = Bytes::from(vec![7; 8 * MIB]);
    let driver = open().await.unwrap();
    driver.create(&name, Instant::FAR_FUTURE).await.unwrap();
    let storage = driver.open(&name, Instant::FAR_FUTURE).await.unwrap().unwrap();
    storage.put(key.clone(), value.clone(), Instant::FAR_FUTURE).await.unwrap();
    driver.close().await;

    let bytes = std::fs::read(&path).unwrap();
    let place = bytes.chunks(4_096).position(|page| page == [7; 4_096]).unwrap() * 4_096;
    assert!(is_in_memory(&path, place + 4 * MIB));
    let driver = open().await.unwrap();
    assert!(!is_in_memory(&path, place + 4 * MIB));
    let storage = driver.open(&name, Instant::FAR_FUTURE).await.unwrap().unwrap();
    let there = storage.get(&key, Consistency::Plain, Instant::FAR_FUTURE).await.unwrap();
    assert!(there == Some(value));
    driver.close().await;
}
