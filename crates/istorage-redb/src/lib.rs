//! The storage contract of VVM on [redb](https://docs.rs/redb): embedded, durable, for one node.
//!
//! One file holds all keyspaces, and two files beside it hold its write-ahead log. One thread takes
//! all waiting requests, writes their rows into the log, and answers when they are on the disk. The
//! rows are in memory until another thread has brought them into the file, many at once. A few
//! threads read from both, so a write never blocks a read. After a crash the file opens soon,
//! however large it is. See [`RedbDriver`].

// The example of the README is compiled as a test.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod background_check;
mod backup;
mod check;
mod config;
mod desk;
mod disk;
mod driver;
mod engine;
mod errors;
#[cfg(test)]
mod failures;
mod file;
mod filer;
mod filing;
mod gaps;
mod judge;
mod layout;
mod log;
mod mem_table;
#[cfg(test)]
mod power;
mod queue;
mod read;
mod request;
mod search;
mod shared;
mod storage;
mod tables;
#[cfg(test)]
mod tests;
mod time;
mod view;
mod write;

pub use backup::{BackupReport, OfflineBackup, restore, verify_backup};
pub use check::{CheckReport, check};
pub use config::RedbConfig;
pub use driver::RedbDriver;
pub use queue::{TABLES_BYTES, WAITING_BYTES};
pub use storage::CAPABILITIES;

// The types of these crates occur in the API.
pub use clock;
pub use istorage;
