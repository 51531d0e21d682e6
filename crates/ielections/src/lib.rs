//! Leader election over any store with conditional writes and a TTL.
//!
//! Nodes compete for *slots*. The leader of a slot holds a lease, a row that expires unless it is renewed, and an *epoch*: a
//! number that no two leaderships of a slot share, and that grows. See [`Engine`] for the decisions and
//! [`Budget`] for how the time of a lease is spent.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod budget;
mod comeback;
mod engine;
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
pub use engine::{Answer, Candidacy, Engine, GaveUp, Input, Next, Notice, Op, Random, Step};
pub use killer::Kill;
pub use leadership::{Leadership, Stopped, Unproved, Work};
pub use lease::{Epoch, EpochRow, Incarnation, Lease, Slot};
pub use lost::Lost;
pub use mem::MemStore;
pub use observer::{Leaders, Observer};
pub use runtime::{Elections, Health, NotAcquired};
pub use store::{Cause, Row, Seen, StoreError, TtlStore, Written};
