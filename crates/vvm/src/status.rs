//! The status of a node, for people and programs.

use std::{collections::BTreeMap, net::SocketAddr};

use serde::Serialize;

use crate::Stage;

/// The status of a node.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// The stage of the node.
    pub stage: Stage,
    /// The time since the launch of the node.
    pub up_ms: u64,
    /// The address where clients find the node.
    pub advertised: SocketAddr,
    /// The number of seats, and so of nodes that lead at the same time.
    pub seats: u32,
    /// The leadership of the node, if it leads.
    pub lead: Option<LeadershipStatus>,
    /// The leader of each seat, by the leases that the storage reported last.
    pub leaders: BTreeMap<u32, SocketAddr>,
    /// The storage of the node.
    pub storage: StorageStatus,
    /// The applications of the node.
    pub apps: Vec<AppStatus>,
    /// The problem that keeps the node from going on.
    pub problem: Option<String>,
}

/// The storage of a node.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageStatus {
    /// The name of the driver.
    pub driver: &'static str,
    /// The name of the system keyspace.
    pub system_keyspace: String,
    /// Whether the last attempt to read the leases succeeded.
    pub answers: bool,
    /// The age of the last answer; `None` if the storage has not answered yet. The node asks the
    /// storage when a reader asks for the status.
    pub answer_age_ms: Option<u64>,
    /// The error of the last attempt to read the leases.
    pub last_error: Option<String>,
}

/// The leadership of a seat.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeadershipStatus {
    /// The number of the seat.
    pub seat: u32,
    /// The epoch of the leadership.
    pub epoch: u64,
    /// The time until the leadership ends (`valid_until`), unless the lease is renewed; `None` when
    /// it has ended.
    pub left_ms: Option<u64>,
}

/// An application on a node.
#[derive(Clone, Debug, Serialize)]
pub struct AppStatus {
    /// The owner and the name of the application.
    pub app: String,
    /// The number of partitions of the application.
    pub partitions: u16,
    /// The trust level of the application.
    pub level: String,
    /// The partitions that are at work on this node.
    pub here: Vec<PartitionStatus>,
}

/// A partition at work.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PartitionStatus {
    /// The number of the partition.
    pub number: u16,
    /// The status of the partition.
    pub status: String,
    /// The damaged rows that readers met: the first 16 in the order of their names. A row stays
    /// here until a reader reads it without an error.
    pub damaged: Vec<String>,
    /// The number of damaged rows that readers met, up to 1,000.
    pub damaged_rows: usize,
    /// The number of commands that wait.
    pub waiting: usize,
    /// The offset of the first event in the PLog that is not known to be applied.
    pub next_offset: Option<u64>,
    /// The number of the sequencer's numbers that are not stored yet.
    pub unflushed_numbers: usize,
    /// The number of events between the stored numbers and the end of the log. These events are
    /// read again after a crash.
    pub unflushed_events: u64,
}
