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
//! side by side and makes a [`Report`]. [`harness`] makes each trial a test of `cargo test`.
//!
//! A trial proves nothing unless it can fail. [`finding_of`] runs a trial on a wrong
//! implementation, and returns the text of its failure.
//!
//! [`LogLines`], [`free_address`] and [`is_long`] are for the tests of any crate.

mod address;
mod case;
mod finding;
pub mod harness;
mod log_lines;
mod long;
mod report;
mod runner;
mod shortened;
pub mod tasks;
mod verdict;

pub use address::free_address;
pub use case::{Trial, TrialResult};
pub use finding::finding_of;
pub use log_lines::LogLines;
pub use long::is_long;
pub use report::{Conclusion, Progress, Report, TrialReport};
pub use runner::{TrialRunner, run_all};
pub use shortened::Shortened;
pub use verdict::{EarlyEnd, Verdict, equal};

pub use crate::{ensure, ensure_eq, trials};
