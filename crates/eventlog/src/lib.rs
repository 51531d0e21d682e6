//! Events of an application, their bytes, the tables that they write, and their logs.
//!
//! - A [`Log`] is the log of a partition, for its leader. A [`Fence`] (the fence) proves that the
//!   node leads. The leader [writes](Log::write) groups of events, and the rows that follow from
//!   the events, at a [`TrustLevel`]. After a takeover the leader [replays](Log::replay) the end of
//!   the log.
//! - A [`Reader`] reads logs and records, and needs no leadership.
//! - A [`Schema`] declares the tables.
//! - [`Log::entries`] reads a log as it is stored, and a [`LogCopier`] writes it elsewhere.
//! - A [`Deployment`] stores the schema and the trust level beside the rows.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod acknowledged;
mod app_row;
mod apply;
mod calls;
mod commit;
mod conflict;
mod copy;
mod deployment;
mod error;
mod event;
mod fence;
mod fields;
pub mod layout;
mod log;
mod names;
mod obstacle;
mod plan;
mod prepared;
mod reader;
mod record;
mod repair;
mod replay;
mod schema;
mod settings;
mod strays;
mod trust_level;
mod value;
mod wire;

pub use acknowledged::AcknowledgedVersions;
pub use app_row::AppRow;
pub use base::{Epoch, Offset, WsId};
pub use copy::{LogCopier, largest_row_of};
pub use deployment::{Deployment, DeploymentError, LevelChange};
pub use error::{DamagedRow, Error, Result, Violation};
pub use event::{
    DrawnNumber, Entry, Event, EventPlace, FencingEntry, Idempotency, Marker, RecordChange,
    StoredAnswer,
};
pub use fence::{Fence, LeadershipLost, LogFence, SingleNodeFence};
pub use fields::Fields;
pub use log::{Log, Tail, WriteOutcome};
pub use names::{InvalidName, LONGEST_NAME, Name, QName};
pub use obstacle::{Obstacle, Repair};
pub use prepared::PreparedEvent;
pub use reader::{Reader, RecordBlock};
pub use record::{Parent, Record, RecordId, StoredRecord, TableKind, Version};
pub use repair::{
    DamagedEvent, DamagedFencing, EventNeighbours, LogRepair, PlaceCandidate, PlaceEvidence,
    SEARCHED_EVENTS, row_digest,
};
pub use schema::{IncompatibleSchema, InvalidRecord, InvalidSchema, SINGLETON_IDS, Schema, Table};
pub use settings::LogSettings;
pub use trust_level::{InvalidTrustLevel, TrustLevel};
pub use value::{FieldType, Value};
pub use wire::{DecodeError, row_formats};

// The types of these crates occur in the API.
pub use bytes;
pub use clock;
pub use futures;
pub use istorage;

/// The example of the README is compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
