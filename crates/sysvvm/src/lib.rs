//! The system keyspace: its key layout, its format, the registry of applications, election rows,
//! ownership rows, members and stored numbers.
//!
//! A [`System`] is a database with its system keyspace open. It has the registry ([`AppEntry`]),
//! and gives the rows of each kind: [`ElectionRows`], [`OwnerRows`], [`MemberRows`], [`NumberRows`]
//! and [`RepairRows`]. Invariant: only this crate knows the keys of the system keyspace. The keys
//! of document numbers begin with the bytes that [`System::document_numbers`] gives; the crate
//! `docnumbers` decides the rest.
//!
//! A system gives each application a keyspace of its own:
//!
//! ```
//! use clock::Clock;
//! use istorage::{KeyspaceName, mem::MemDriver};
//! use std::{num::NonZeroU16, sync::Arc, time::Duration};
//! use sysvvm::{AppName, Error, System};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Error> {
//! let clock = Clock::system();
//! let soon = || clock.now() + Duration::from_secs(5);
//! let driver = Arc::new(MemDriver::new(clock.clone()));
//! let system = System::open(driver, KeyspaceName::new("sysvvm")?, clock.clone(), soon()).await?;
//!
//! let name = AppName::new("acme", "shop")?;
//! let partitions = NonZeroU16::new(10).expect("ten is not zero");
//! let created = system.init_app(&name, partitions, soon()).await?;
//! let opened = system.open_app(&name, soon()).await?;
//! assert_eq!(opened.entry, created.entry);
//! assert!(matches!(system.init_app(&name, partitions, soon()).await, Err(Error::AlreadyExists { .. })));
//! # Ok(())
//! # }
//! ```

// The example of the README is compiled as a test.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod elections;
mod entry;
mod error;
mod layout;
mod members;
mod name;
mod numbers;
mod owners;
mod repairs;
mod system;

pub use elections::ElectionRows;
pub use entry::{AppEntry, AppNumber, InitState};
pub use error::{Error, Result};
pub use layout::system_row_kind;
pub use members::{BalancingPause, ClusterRows, MemberRows, OperatorOrder, OrderId, SeenMember};
pub use name::AppName;
pub use numbers::{
    LastNumber, NumberKeys, NumberPlace, NumberRows, StoredOffset, number_in, offset_in,
};
pub use owners::{OwnerRows, StoredOwners};
pub use repairs::RepairRows;
pub use system::{AppImport, FORMAT_VERSION, ImportState, OpenedApp, System};

// The types of these crates occur in the API.
pub use bytes;
pub use clock;
pub use ielections;
pub use istorage;
pub use ownership;
