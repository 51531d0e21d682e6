//! Leader election over any store with conditional writes and a TTL.
//!
//! Nodes compete for *slots*. The leader of a slot holds a lease, a row that expires unless it is renewed, and an *epoch*: a
//! number that no two leaderships of a slot share, and that grows. [`Elections`] is a node that can lead, over any [`TtlStore`]:
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//!
//! use clock::Clock;
//! use ielections::{Elections, MemStore, Slot, Timing};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = Clock::system();
//! let store = Arc::new(MemStore::new(clock.clone()));
//! let node = Elections::new(store, clock.clone(), "10.0.0.5:8080".parse()?, Timing::default())?
//!     // Work that goes on after the end is ended with the process.
//!     .with_killer(Arc::new(|_why| std::process::abort()));
//!
//! // A standby waits until `Instant::FAR_FUTURE`.
//! let leadership = node.acquire(Slot::FIRST, clock.now() + Duration::from_secs(120)).await?;
//!
//! let work = leadership.work()?;
//! let timeout = Duration::from_secs(1);
//! work.may_send(timeout)?; // right before a write that is given up after a second, and before its success is told
//! work.finish(); // all that was written is answered
//!
//! leadership.stopped(clock.now() + timeout).await?.release().await; // the next one leads at once
//! # Ok(())
//! # }
//! ```
//!
//! See [`engine`] for the decisions, [`Budget`] for how the time of a lease is spent, and [`suite`] to prove a store.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod budget;
mod causes;
mod comeback;
pub mod engine;
mod killer;
mod leadership;
mod lease;
mod lost;
mod mem;
mod meters;
mod observer;
mod place;
mod runtime;
mod store;
pub mod suite;
mod term;

pub use budget::{Budget, DoesNotFit, Timing};
pub use comeback::{LockError, LockFile};
pub use engine::GaveUp;
pub use killer::Kill;
pub use leadership::{Leadership, Stopped, Unproved, Work};
pub use lease::{Epoch, EpochRow, Incarnation, Lease, Slot};
pub use lost::Lost;
pub use mem::MemStore;
pub use observer::{Leaders, Observer};
pub use runtime::{Elections, Health, NotAcquired};
pub use store::{Cause, Row, Seen, StoreError, TtlStore, Written};
