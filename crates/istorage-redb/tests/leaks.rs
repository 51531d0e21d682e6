//! Tests that a driver gives back its threads and files. The test is alone in its binary, because
//! it counts the threads and the open files of the process.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::{fs, time::Duration};

use bytes::Bytes;
use clock::{Clock, Instant};
use istorage::{AppStorageExt, Key, KeyspaceName, StorageDriver};
use istorage_redb::{RedbConfig, RedbDriver};

fn held() -> (usize, usize) {
    let count = |folder| fs::read_dir(folder).unwrap().count();
    (count("/proc/self/task"), count("/proc/self/fd"))
}

#[tokio::test]
async fn a_thousand_opened_drivers_leave_no_thread_and_no_open_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.redb");
    let clock = Clock::system();
    let name = KeyspaceName::new("tests").unwrap();
    let before = held();
    for round in 0..1_000 {
        let driver = RedbDriver::open(RedbConfig::new(&path), clock.clone()).await.unwrap();
        if round % 100 == 0 {
            driver.create(&name, Instant::FAR_FUTURE).await.unwrap();
            let storage = driver.open(&name, Instant::FAR_FUTURE).await.unwrap().unwrap();
            storage.put(Key::new("p", "c"), Bytes::new(), Instant::FAR_FUTURE).await.unwrap();
        }
        driver.close().await;
        settles_to(before, &clock, round).await;
    }

    for round in 0..50 {
        // The driver is dropped without a close, so the threads end by themselves, a moment later.
        drop(RedbDriver::open(RedbConfig::new(&path), clock.clone()).await.unwrap());
        settles_to(before, &clock, round).await;
    }
}

/// Waits until the process holds as much as before. The kernel shows a thread for a moment after it
/// has been joined.
async fn settles_to(before: (usize, usize), clock: &Clock, round: usize) {
    let deadline = clock.now() + Duration::from_secs(20);
    while held() != before {
        assert!(
            clock.now() < deadline,
            "round {round}: {:?} are still held, not {before:?}",
            held()
        );
        clock.sleep(Duration::from_millis(1)).await;
    }
}
