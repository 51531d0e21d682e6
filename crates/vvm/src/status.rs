//! What a node is doing, for people and programs.

use std::{collections::BTreeMap, net::SocketAddr};

use serde::Serialize;

use crate::Stage;

/// What a node is doing.
#[derive(Clone, Debug, Serialize)]
pub struct NodeStatus {
    /// In one word.
    pub stage: Stage,
    /// How long it has been launched.
    pub up_ms: u64,
    /// Where clients find it.
    pub advertised: SocketAddr,
    /// How many nodes work at the same time.
    pub slots: u32,
    /// What it leads.
    pub lead: Option<LeadStatus>,
    /// The leader of each slot, by the leases that the storage told last.
    pub leaders: BTreeMap<u32, SocketAddr>,
    /// Where everything is kept.
    pub storage: StorageStatus,
    /// Its applications.
    pub apps: Vec<AppStatus>,
    /// Why it does not go on.
    pub problem: Option<String>,
}

/// The storage of a node.
#[derive(Clone, Debug, Serialize)]
pub struct StorageStatus {
    /// Its driver.
    pub driver: &'static str,
    /// The keyspace of what all nodes share.
    pub system_keyspace: String,
    /// Whether the node could read the leases when it tried last.
    pub answers: bool,
    /// How old the last answer is; `None` if the storage has not answered yet. The node tries when somebody asks.
    pub answer_age_ms: Option<u64>,
    /// Why the node could not read them.
    pub trouble: Option<String>,
}

/// The lead of a slot.
#[derive(Clone, Debug, Serialize)]
pub struct LeadStatus {
    /// Which.
    pub slot: u32,
    /// In which epoch.
    pub epoch: u64,
    /// How long it lasts if it is not renewed; `None` if it is over.
    pub left_ms: Option<u64>,
}

/// An application on a node.
#[derive(Clone, Debug, Serialize)]
pub struct AppStatus {
    /// Whose it is, and what it is called.
    pub app: String,
    /// How many partitions it has.
    pub partitions: u16,
    /// Its trust level.
    pub level: String,
    /// Those that are at work on this node.
    pub here: Vec<PartitionStatus>,
}

/// A partition at work.
#[derive(Clone, Debug, Serialize)]
pub struct PartitionStatus {
    /// Which.
    pub number: u16,
    /// What it is doing.
    pub status: String,
    /// Damaged rows that readers met, the first 16 in the order of their names. A row is forgotten when a reader gets past it.
    pub damaged: Vec<String>,
    /// How many damaged rows readers met, up to 1,000.
    pub damaged_rows: usize,
    /// How many commands wait.
    pub waiting: usize,
    /// The offset of the first event in its log that is not known to be applied.
    pub next_offset: Option<u64>,
    /// How many numbers of its sequencer are not stored yet.
    pub unflushed_numbers: usize,
    /// How many events its stored numbers are behind the log: so many are read again after a crash.
    pub unflushed_events: u64,
}
