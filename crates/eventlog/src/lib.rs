//! What happened in an application: events, their bytes, the tables that they write, and the logs that they are in.
//!
//! A [`Log`] is the log of a partition in the hands of its leader, which proves by a [`Lead`] that it leads: it [writes](Log::write) groups of events and what
//! follows from them, at a [`TrustLevel`], and [replays](Log::replay) its end after a takeover. A [`Reader`] reads logs and records, for anybody. A [`Schema`]
//! says which tables there are, and a [`Deployment`] keeps them, and the level, beside the rows.

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
