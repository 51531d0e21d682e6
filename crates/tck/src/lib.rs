//! The conformance suites of VVM, for engineers who run them against an implementation of their
//! own.
//!
//! - [`storage`] proves a storage driver: [`AppStorage`](istorage::AppStorage) and
//!   [`StorageDriver`](istorage::StorageDriver).
//! - [`elections`] proves a store of elections: [`TtlStore`](ielections::TtlStore), and the
//!   promises of [`Elections`](ielections::Elections) over it.
//! - [`trial`] is what both suites are made of: named trials, verdicts, runs and reports. A suite
//!   of your own can use it, too.
//!
//! The README has a first example for each of them.

// The example of the README is compiled as a test.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod elections;
pub mod storage;
pub mod trial;

// The types of these crates occur in the API.
pub use async_trait::async_trait;
pub use clock;
pub use ielections;
pub use istorage;
pub use libtest_mimic;
