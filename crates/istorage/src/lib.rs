//! The storage contract of VVM: a wide-column store with plain, ordered and conditional writes.
//!
//! [`AppStorage`] is the contract. Read it first. [`AppStorageExt`] adds the single-row calls. A
//! [`StorageDriver`] makes and opens keyspaces. [`mem`] is the driver that keeps all rows in
//! memory. [`Guarded`] and [`Metered`] wrap the storage of any driver. Implement
//! [`StorageWrapper`] for a new wrapper. A [`ReadOnlyDriver`] opens keyspaces for reading only.
//! [`settle`] makes a conditional write, and sends it again until its outcome is known.
//!
//! ```
//! use istorage::{
//!     AppStorageExt, Consistency, Key, KeyspaceName, Outcome, StorageDriver, bytes::Bytes,
//!     clock::Clock, mem::MemDriver,
//! };
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> istorage::Result<()> {
//! let clock = Clock::system();
//! let driver = MemDriver::new(clock.clone());
//! let name = KeyspaceName::new("demo")?;
//! let soon = || clock.now() + Duration::from_secs(1);
//! driver.create(&name, soon()).await?;
//! let storage = driver.open(&name, soon()).await?.expect("it was just created");
//!
//! let key = Key::new("counter", "a");
//! let first = storage.insert_if_not_exists(key.clone(), Bytes::from("1"), None, soon()).await?;
//! assert_eq!(first, Outcome::Applied);
//! let second = storage.insert_if_not_exists(key.clone(), Bytes::from("2"), None, soon()).await?;
//! assert!(!second.is_applied());
//! assert_eq!(storage.get(&key, Consistency::Plain, soon()).await?, Some(Bytes::from("1")));
//! # Ok(())
//! # }
//! ```

// The example of the README is compiled as a test.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod call;
mod capabilities;
mod check;
mod driver;
mod error;
mod guarded;
pub mod mem;
mod metered;
mod read_only;
mod rows;
mod rows_at_once;
pub mod settle;
mod storage;
mod storage_ext;
mod wrapped_driver;
mod wrapper;
mod writes;

pub use call::{Call, CallAnswer, CallKind, RangeRead, Write};
pub use capabilities::{BatchLimits, Capabilities, RowLimits};
pub use check::{TTL_MAX, check_conditions};
pub use driver::{BackupStream, KeyspaceName, StorageDriver};
pub use error::{CorruptRow, Error, ErrorKind, InvalidSetting, Result};
pub use guarded::Guarded;
pub use metered::Metered;
pub use read_only::ReadOnlyDriver;
pub use rows::{ExpiringRow, FoundRow, Key, Range, Row};
pub use rows_at_once::RowsAtOnce;
pub use storage::{
    AppStorage, Consistency, ExpiringRowStream, PartitionStream, RowStream, ServerTime,
    SharedStorage,
};
pub use storage_ext::AppStorageExt;
pub use wrapped_driver::WrappedDriver;
pub use wrapper::StorageWrapper;
pub use writes::{AtomicBatch, Conditional, Conflict, Order, OrderedPut, Outcome, Put};

// The types of these crates occur in the API.
pub use async_trait::async_trait;
pub use bytes;
pub use clock;
pub use futures;
