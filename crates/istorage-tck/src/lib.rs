//! The conformance suite for storages: the storage contract of VVM as named trials that any driver
//! can run.
//!
//! A [`Subject`] is a database and the way to reach it. A [`ScratchKeyspace`] is a keyspace of the
//! database that is made for the run and removed at the end. Each of the [`trials`] proves one case
//! of the contract of [`AppStorage`](istorage::AppStorage) or
//! [`StorageDriver`](istorage::StorageDriver). A trial has partitions of its own, so many trials
//! run side by side.
//!
//! The contract leaves some abilities to the storage. Its [`Capabilities`](istorage::Capabilities)
//! decide, never its name. If a storage lacks an ability, the trial of that ability is
//! [ignored](trialkit::Conclusion::Ignored), with the reason, and never counts as passed. If a
//! storage hangs or panics in a trial, that trial fails.
//!
//! The trials are proved, too: [`wrong`] has deliberately wrong storages, and each trial fails on
//! at least one of them.
//!
//! # A harness
//!
//! This makes every trial a test of `cargo test`, with `harness = false` and the feature `libtest`
//! of `trialkit`. The README has the lines for `Cargo.toml`.
//!
//! ```no_run
//! use istorage_tck::{
//!     Scale, ScratchKeyspace, Subject, async_trait,
//!     clock::Clock,
//!     istorage::{Result, StorageDriver, mem::MemDriver},
//!     trials,
//! };
//! use std::sync::Arc;
//! use trialkit::harness::{self, libtest_mimic};
//!
//! struct Mine(MemDriver);
//!
//! #[async_trait]
//! impl Subject for Mine {
//!     fn clock(&self) -> Clock { Clock::system() }
//!     fn scale(&self) -> Scale { Scale::Embedded }
//!     async fn node(&self, _wall_ahead_ms: i64) -> Result<Arc<dyn StorageDriver>> { Ok(Arc::new(self.0.clone())) }
//!     async fn spare(&self) -> Result<Arc<dyn StorageDriver>> { Ok(Arc::new(MemDriver::new(self.clock()))) }
//! }
//!
//! fn main() {
//!     let runtime = tokio::runtime::Runtime::new().unwrap();
//!     let subject = Mine(MemDriver::new(Clock::system()));
//!     let scratch = runtime.block_on(ScratchKeyspace::create(Arc::new(subject))).unwrap();
//!     let scratch = Arc::new(scratch);
//!     let tests = harness::tests(runtime.handle(), "mine::", &scratch, trials());
//!     let arguments = libtest_mimic::Arguments::from_args();
//!     let conclusion = libtest_mimic::run(&arguments, tests);
//!     runtime.block_on(Arc::into_inner(scratch).unwrap().remove()).unwrap();
//!     conclusion.exit();
//! }
//! ```
//!
//! [`trialkit::run_all`] runs the trials without a harness and returns a
//! [`Report`](trialkit::Report).

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod answers;
mod client;
mod context;
mod keyspace_tracker;
mod scratch;
mod subject;
mod trials;
mod wrapped;
pub mod wrong;

pub use context::StorageContext;
pub use keyspace_tracker::KeyspaceTracker;
pub use scratch::ScratchKeyspace;
pub use subject::{Scale, Subject};
pub use trials::trials;
pub use wrapped::WrappedSubject;

// The types of these crates occur in the API.
pub use async_trait::async_trait;
pub use clock;
pub use istorage;
pub use trialkit;

/// The example of the README is compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
