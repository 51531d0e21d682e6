//! Connects the sequencer to any storage: the numbers and the log of a partition.
//!
//! A [`PartitionStorage`] is the port of the sequencer. The numbers are in one of two places: in
//! rows of the system keyspace that all partitions share
//! ([`System::numbers`](sysvvm::System::numbers)), or in a view of each partition in the keyspace
//! of the application ([`numbers_in_view`]). The port also plans and makes repairs: a [`MarkPlan`]
//! for an event that cannot be read, and a [`NumberPlan`] for a stored number.
//!
//! Invariant: the replay applies an event before the sequencer gets its numbers, so the stored
//! numbers and offset are never ahead of the applied events.

// The example of the README is compiled as a test.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod mark;
mod number_repair;
mod partition;
mod view;

pub use mark::{MarkError, MarkPlan};
pub use number_repair::{NumberPlan, NumberRepairError};
pub use partition::{PartitionStorage, StoredSequence};
pub use view::{SEQUENCES_VIEW, numbers_in_view, sequence_name, sequence_names};

// The types of these crates occur in the API.
pub use clock;
pub use eventlog;
pub use isequencer;
pub use istorage;
pub use sysvvm;
