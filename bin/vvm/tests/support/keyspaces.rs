//! Checks of the files that a command leaves behind.

use std::{path::Path, time::Duration};

use clock::Clock;
use istorage::{KeyspaceName, StorageDriver};
use istorage_redb::{RedbConfig, RedbDriver};

/// Returns whether a redb file contains a keyspace.
pub(crate) fn exists(file: &Path, keyspace: &KeyspaceName) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let clock = Clock::system();
        let deadline = clock.now() + Duration::from_secs(10);
        let driver = RedbDriver::open(RedbConfig::new(file), clock).await.unwrap();
        let exists = driver.open(keyspace, deadline).await.unwrap().is_some();
        driver.close().await;
        exists
    })
}
