//! Events of an application, their bytes, the tables that they write, and their logs.
//!
//! - A [`Log`] is the log of a partition, for its leader. A [`Lead`] (the fence) proves that the
//!   node leads. The leader [writes](Log::write) groups of events, and the rows that follow from
//!   the events, at a [`TrustLevel`]. After a takeover the leader [replays](Log::replay) the end of
//!   the log.
//! - A [`Reader`] reads logs and records, and needs no leadership.
//! - A [`Schema`] declares the tables.
//! - A [`Deployment`] stores the schema and the trust level beside the rows.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod apply;
mod deployment;
mod error;
mod event;
mod fields;
mod judge;
pub mod layout;
mod lead;
mod level;
mod log;
mod mark;
mod names;
mod plan;
mod reader;
mod record;
mod replay;
mod row;
mod schema;
mod value;
mod wire;

pub use deployment::{Deployment, NotDeployed};
pub use error::{Broken, Error, Result, Violation};
pub use event::{
    Change, Corrupted, Drawn, Entry, Epoch, Event, Idempotency, Offset, Place, StoredAnswer, WsId,
};
pub use fields::Fields;
pub use lead::{Alone, Lead, LeadLost};
pub use level::{BadLevel, TrustLevel};
pub use log::{Fate, Log, Settings, Tail};
pub use mark::{Around, Damaged};
pub use names::{BadName, LONGEST_NAME, Name, QName};
pub use plan::Prepared;
pub use reader::Reader;
pub use record::{Parent, Record, RecordId, StoredRecord, TableKind, Version};
pub use row::Row;
pub use schema::{BadRecord, BadSchema, CannotFollow, SINGLETON_IDS, Schema, Table};
pub use value::{FieldType, Value};
pub use wire::Unreadable;
