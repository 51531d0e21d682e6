//! The numbers and the log of a partition, as its sequencer needs them, on any storage.
//!
//! Two places are offered for the numbers: rows of the system keyspace, which all partitions share ([`System::numbers`](sysvvm::System::numbers)),
//! and a view in the keyspace of the application, one for each partition ([`view`]). The log is the same for both: replaying it
//! applies an event before its numbers are told, so what is stored of them is never ahead of what is applied.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod mark;
mod partition;
mod view;

pub use mark::NotMarked;
pub use partition::PartitionStorage;
pub use view::view;
