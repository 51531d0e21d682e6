//! A node: it acquires the leadership of a seat, works while the leadership lasts, and stops in
//! order.
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
//! [`Builder::build`] makes a node. Nothing of the node runs until [`Vvm::launch`].
//! [`Launched::shutdown`] stops the node. A node that loses its leadership reports the problem to
//! its host, and the host shuts the node down. A [killer](Builder::with_killer), if there is one,
//! ends the process if work does not stop in time.

// The example of the README is compiled as a test.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod app;
mod builder;
mod change_level;
mod clients;
mod cluster_orders;
mod cluster_status;
mod cluster_view;
mod drain;
mod launch;
mod leading;
mod lease_fence;
mod membership;
mod node;
mod node_service;
mod opening;
mod owned;
mod owned_log;
mod partition_service;
mod partitions;
mod parts;
mod problem;
mod repair;
mod running_services;
mod series;
mod service;
mod settings;
mod status;
mod successor;

pub use app::{App, LocalPartition, NotOwner};
pub use builder::{Builder, InvalidNodeSettings, Vvm};
pub use change_level::{ChangeLevelError, ChangedLevel, LevelStep, change_level};
pub use cluster_orders::{ClusterOrder, OrderError};
pub use cluster_status::{ClusterStatus, MemberStatus, OwnedPartitionStatus};
pub use launch::{Launched, NotReady, StopShare};
pub use node::{Node, NotLeading, Stage};
pub use node_service::{HeldSeat, NodeService};
pub use owned_log::OwnedLog;
pub use partition_service::{OwnedPartition, PartitionService};
pub use problem::{Problem, ServiceError};
pub use repair::{
    MarkRequest, NoResult, NumberRequest, PlaceHint, ProposedPlace, RemoveRequest, RepairAction,
    RepairError, RepairNote, RowContent, RowInTheWay, StuckPartition,
};
pub use seqstorage::{MarkError, NumberRepairError};
pub use service::Service;
pub use settings::{AppSettings, NodeSettings, NumbersIn};
pub use status::{AppStatus, LeadershipStatus, NodeStatus, PartitionStatus, StorageStatus};
pub use successor::SuccessorCheck;

// The types of these crates occur in the API. A host also has the crate `tokio`, because a node
// runs on a runtime of tokio.
pub use async_trait::async_trait;
pub use clock;
pub use docnumbers;
pub use eventlog;
pub use futures;
pub use ielections;
pub use isequencer;
pub use istorage;
pub use processor;
pub use processor::bytes;
pub use seqstorage;
pub use sysvvm;
pub use tokio_util::sync::CancellationToken;
