//! A node: it acquires the lead of a slot, works while it has that, and stops in order.
//!
//! ```text
//!             launch                                          shutdown
//!                |                                                |
//!   admin        |== ports ==================================================|
//!   services     |== ports ======================================|           |
//!   storage        |== open =================================================|
//!   lead                   |== waits ==|== leads =====================|
//!   partitions                         |== recover ==|== work ===|
//! ```
//!
//! [`Vvm::builder`] provides a node of which nothing runs, [`Vvm::launch`] consumes that, and [`Launched::shutdown`] consumes what was launched.
//! A node whose lead is lost tells its host, which shuts it down; what does not stop in time is killed, if there is a
//! [killer](Builder::with_killer).

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod builder;
mod clients;
mod launch;
mod lead;
mod leaders;
mod node;
mod opening;
mod partitions;
mod problem;
mod service;
mod settings;
mod status;

pub use builder::{BadSettings, Builder, Vvm};
pub use launch::{Launched, NotReady};
pub use node::{App, Here, Node, NotLeader, NotLeading, Stage};
pub use problem::{Failure, Problem};
pub use service::Service;
pub use settings::{AppSettings, NumbersIn, Settings};
pub use status::{AppStatus, LeadStatus, NodeStatus, PartitionStatus, StorageStatus};

pub use clock;
pub use eventlog;
pub use ielections;
pub use isequencer;
pub use istorage;
pub use processor;
pub use sysvvm;
