//! The storage contract of VVM on [redb](https://docs.rs/redb): embedded, durable, for one node.
//!
//! One file holds all keyspaces, and two files beside it hold its write-ahead log. One thread does
//! all writes: it takes all waiting requests, runs them in one transaction, and answers them when
//! their effects are in the log on the disk. A few threads read, each from a snapshot, so a write
//! never blocks a read. After a crash the file opens soon, however large it is. See [`RedbDriver`].

// The example of the README is compiled as a test.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod background_check;
mod backup;
mod check;
mod config;
mod disk;
mod driver;
mod engine;
mod errors;
#[cfg(test)]
mod failures;
mod file;
mod group;
mod layout;
mod log;
#[cfg(test)]
mod power;
mod progress;
mod queue;
mod read;
mod request;
mod search;
mod storage;
mod time;
mod write;

pub use backup::{BackupReport, OfflineBackup, restore, verify_backup};
pub use check::{CheckReport, check};
pub use config::RedbConfig;
pub use driver::RedbDriver;
pub use queue::WAITING_BYTES;
pub use storage::CAPABILITIES;

// The types of these crates occur in the API.
pub use clock;
pub use istorage;
