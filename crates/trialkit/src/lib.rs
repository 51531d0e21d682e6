//! Named trials: their lists, verdicts, runs and reports.
//!
//! A conformance suite is a list of trials. A [`Trial`] is a name and an async function over the
//! context of its suite. The type of the context is part of the type of the trial, so a trial of
//! one suite cannot run in the context of another one. [`trials!`] makes the list of a module.
//!
//! The function returns a [`Verdict`]. [`ensure!`] and [`ensure_eq!`] end the trial at the first
//! finding, and `?` ends it at a call that fails. A trial of an ability that its subject lacks ends
//! as [`EarlyEnd::Ignored`], and never counts as passed. A trial that panics, or waits longer than
//! its limit, has failed. If a trial blocks its thread, only a multi-thread runtime notices that
//! the limit has passed.
//!
//! A suite implements [`TrialRunner`], which gives each trial a context. [`run_all`] runs trials
//! side by side and makes a [`Report`].
//!
//! ```
//! use std::{sync::atomic::{AtomicU32, Ordering}, time::Duration};
//!
//! use trialkit::{
//!     Conclusion, Trial, TrialRunner, Verdict, async_trait, ensure_eq, run_all, trials,
//! };
//!
//! const TRIALS: &[Trial<AtomicU32>] = trials!(counter: it_begins_at_0, it_counts);
//!
//! async fn it_begins_at_0(counter: &AtomicU32) -> Verdict {
//!     ensure_eq!(counter.load(Ordering::Relaxed), 0, "the first number");
//!     Ok(())
//! }
//!
//! async fn it_counts(counter: &AtomicU32) -> Verdict {
//!     counter.fetch_add(1, Ordering::Relaxed);
//!     // This fails: each trial has a counter of its own, and this counter is 1 now.
//!     ensure_eq!(counter.load(Ordering::Relaxed), 2, "the number after one step");
//!     Ok(())
//! }
//!
//! struct Counters;
//!
//! #[async_trait]
//! impl TrialRunner for Counters {
//!     type Context = AtomicU32;
//!     fn max_concurrent_trials(&self) -> usize { 2 }
//!     async fn run(&self, trial: &Trial<AtomicU32>) -> Conclusion {
//!         trial.run(AtomicU32::new(0), Duration::from_secs(1)).await
//!     }
//! }
//!
//! # #[tokio::main]
//! # async fn main() {
//! let report = run_all(&Counters, TRIALS, |_progress| {}).await;
//! assert_eq!((report.passed(), report.failed()), (1, 1));
//! assert_eq!(report.trials[1].name, "counter::it_counts");
//! # }
//! ```
//!
//! A trial proves nothing unless it can fail. [`finding_of`] runs a trial on a wrong
//! implementation, and returns the text with which it failed.
//!
//! With the feature `libtest` the module `harness` makes each trial a test of `cargo test`.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod address;
mod finding;
#[cfg(feature = "libtest")]
pub mod harness;
mod log_lines;
mod long;
mod report;
mod runner;
mod shortened;
pub mod tasks;
mod trial;
mod verdict;

pub use address::free_address;
pub use finding::finding_of;
pub use log_lines::LogLines;
pub use long::is_long;
pub use report::{Conclusion, Progress, Report, TrialReport};
pub use runner::{TrialRunner, run_all};
pub use shortened::Shortened;
pub use trial::{Trial, TrialResult};
pub use verdict::{EarlyEnd, Verdict, equal};

// The types of these crates occur in the API.
pub use async_trait::async_trait;

/// The example of the README is compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
