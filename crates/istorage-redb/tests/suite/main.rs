//! The suite of the driver beside that of all storages.
//!
//! One file a subject, and one program for all: each program links all crates again.

#![allow(clippy::unwrap_used)]

mod backup;
mod damage;
mod expiry;
mod file;

use clock::Instant;
use istorage::{KeyspaceName, StorageDriver};

/// Brings all rows into the file: a keyspace is made after that only.
async fn file_rows(driver: &impl StorageDriver) {
    let name = KeyspaceName::new("filed").unwrap();
    driver.create(&name, Instant::FAR_FUTURE).await.unwrap();
    driver.drop_keyspace(&name, Instant::FAR_FUTURE).await.unwrap();
}
