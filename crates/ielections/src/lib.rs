//! Leader election over any store with conditional writes and a TTL.
//!
//! Nodes compete for *seats*. The leader of a seat holds a *lease*, a row that expires unless it is
//! renewed. Each leadership has an *epoch*. No two leaderships of a seat share an epoch, and a
//! later leadership has a higher one.
//!
//! [`Elections`] is a node that can lead, over any [`TtlStore`]:
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//!
//! use ielections::{Elections, Seat, Timing, clock::Clock};
//! use tck::elections::MemStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = Clock::system();
//! let store = Arc::new(MemStore::new(clock.clone()));
//! let node = Elections::new(store, clock.clone(), "10.0.0.5:8080".parse()?, Timing::default())?
//!     // Ends the process if work continues after the end of the leadership.
//!     .with_killer(Arc::new(|_why| std::process::abort()));
//!
//! // Waits for at most two minutes. A standby waits until `Instant::FAR_FUTURE`.
//! let leadership = node.acquire(Seat::FIRST, clock.now() + Duration::from_secs(120)).await?;
//!
//! let work = leadership.work()?;
//! let timeout = Duration::from_secs(1);
//! work.may_send(timeout)?; // right before a write that times out after a second
//! work.may_send(Duration::ZERO)?; // before the success of the write is reported
//! work.finish(); // all writes were answered
//!
//! // Afterwards another node can lead at once.
//! leadership.stopped(clock.now() + timeout).await?.release().await;
//! # Ok(())
//! # }
//! ```
//!
//! - [`engine`] makes the decisions.
//! - [`Budget`] splits the duration of a lease into parts.
//!
//! `tck::elections` tests a store against the contract.

// The example of the README is compiled as a test.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod budget;
mod comeback;
mod elections;
pub mod engine;
mod file_identity;
mod killer;
mod leadership;
mod lease;
mod loss_reason;
mod meters;
mod observer;
mod renewal;
mod runner;
mod store;
mod term;

pub use base::Epoch;
pub use budget::{Budget, InvalidTiming, Timing};
pub use comeback::{LockError, LockFile};
pub use elections::{AcquireError, Elections};
pub use engine::GiveUpReason;
pub use killer::KillFn;
pub use leadership::{Leadership, StoppedLeadership, UnprovedStop, WorkGuard};
pub use lease::{EpochRow, Incarnation, Lease, Seat};
pub use loss_reason::LossReason;
pub use observer::{Leaders, Observer};
pub use renewal::ReleaseOutcome;
pub use runner::HealthCheck;
pub use store::{Cause, ConditionalOutcome, ElectionRow, ObservedLease, StoreError, TtlStore};

// The types of these crates occur in the API.
pub use async_trait::async_trait;
pub use bytes;
pub use clock;
pub use tokio_util::sync::CancellationToken;
