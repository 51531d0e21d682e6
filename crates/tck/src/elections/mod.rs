//! The conformance suite for stores of elections: the contract of
//! [`TtlStore`](ielections::TtlStore), and the promises of
//! [`Elections`](ielections::Elections) over it, as named trials that any store can run.
//!
//! A [`Suite`] is a store and one or more connections to it. Each of the [`trials`] proves one
//! promise with nodes of its own, in seats of its own. So many trials run side by side in one
//! keyspace.
//!
//! Rows stay behind, and seats are counted from 1. So run the suite once, in a store that holds
//! nothing else.
//!
//! Some trials put faults between a node and the store: answers that are lost, late, or never come.
//! The duration of leases follows from the store: see [`Suite::timing`].
//!
//! A [`MemStore`] is a correct store, for suites and examples of your own.

mod context;
mod faulty_store;
mod mem_store;
mod suite;
mod takeover;
mod trials;

pub use context::ElectionsContext;
pub use mem_store::MemStore;
pub use suite::Suite;
pub use takeover::Takeover;
pub use trials::trials;
