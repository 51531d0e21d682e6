//! Tests of the names of files, and of the pages of a file that Linux has in memory.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
};

use bytes::Bytes;
use clock::{Clock, Instant};
use istorage::{AppStorageExt, Consistency, Key, KeyspaceName, StorageDriver};
use rustix::fs::{Advice, fadvise};

use super::real::rename_to_free;
use crate::{RedbConfig, RedbDriver};

const MIB: usize = 1 << 20;

/// A restore onto a file system without links (vfat, some network file systems) failed at its end.
#[test]
fn a_file_that_cannot_be_linked_is_renamed_and_replaces_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let [new, name, taken] = ["new", "name", "taken"].map(|name| folder.path().join(name));
    fs::write(&new, "new").unwrap();
    fs::write(&taken, "kept").unwrap();
    let no_links = || std::io::Error::from(std::io::ErrorKind::PermissionDenied);
    let refused = rename_to_free(&new, &taken, no_links()).unwrap_err();
    assert_eq!(refused.kind(), no_links().kind());
    assert_eq!(fs::read(&taken).unwrap(), b"kept");
    rename_to_free(&new, &name, no_links()).unwrap();
    assert_eq!(fs::read(&name).unwrap(), b"new");
    assert!(!new.exists());
}

/// The number of bytes that disks have read for this thread.
fn disk_bytes() -> u64 {
    let counters = fs::read_to_string("/proc/thread-self/io").unwrap_or_default();
    let bytes = counters.lines().find_map(|line| line.strip_prefix("read_bytes: "));
    bytes.map_or(0, |bytes| bytes.parse().unwrap())
}

/// Whether the disk must read this place of a file, because the system does not have the place in
/// memory. Afterwards the system has it in memory.
///
/// The test looked with a read that must not wait (`RWF_NOWAIT`). But such a read also asks the
/// disk, and succeeds if the disk answers at once. So under load the place seemed to be in memory.
fn asks_disk(path: &Path, at: usize) -> bool {
    let file = File::open(path).unwrap();
    let before = disk_bytes();
    file.read_exact_at(&mut [0; 512], at as u64).unwrap();
    disk_bytes() > before
}

/// Whether the file system of a folder is on a disk, and forgets pages on request.
fn can_forget(folder: &Path) -> bool {
    let path = folder.join("probe");
    fs::write(&path, vec![1; 8 * MIB]).unwrap();
    let file = File::open(&path).unwrap();
    file.sync_all().unwrap();
    let was_in_memory = !asks_disk(&path, 4 * MIB);
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    was_in_memory && asks_disk(&path, 4 * MIB)
}

/// After a failed sync, Linux shows pages that it did not write and will never write. A node that
/// was started again read those pages.
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

    let bytes = fs::read(&path).unwrap();
    let place = bytes.chunks(4_096).position(|page| page == [7; 4_096]).unwrap() * 4_096;
    assert!(!asks_disk(&path, place + 4 * MIB));
    let driver = open().await.unwrap();
    assert!(asks_disk(&path, place + 4 * MIB));
    let storage = driver.open(&name, Instant::FAR_FUTURE).await.unwrap().unwrap();
    let there = storage.get(&key, Consistency::Plain, Instant::FAR_FUTURE).await.unwrap();
    assert!(there == Some(value));
    driver.close().await;
}
