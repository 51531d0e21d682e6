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
//! [ignored](crate::trial::Conclusion::Ignored), with the reason, and never counts as passed. If a
//! storage hangs or panics in a trial, that trial fails.
//!
//! The trials are proved, too: [`wrong`] has deliberately wrong storages, and each trial fails on
//! at least one of them.
//!
//! For suites of your own, [`Faulty`] puts faults in front of any storage.

mod answers;
mod client;
mod context;
mod faulty;
mod keyspace_tracker;
mod scratch;
mod subject;
mod trials;
mod wrapped;
pub mod wrong;

pub use context::StorageContext;
pub use faulty::{Fault, FaultRates, Faulty};
pub use keyspace_tracker::KeyspaceTracker;
pub use scratch::ScratchKeyspace;
pub use subject::{Scale, Subject};
pub use trials::trials;
pub use wrapped::WrappedSubject;
