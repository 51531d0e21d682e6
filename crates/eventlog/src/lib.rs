//! Events of an application, their bytes, and the tables that they write.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod event;
pub mod layout;
mod level;
mod names;
mod plan;
mod record;
mod schema;
mod value;
mod wire;

pub use event::{Change, Corrupted, Drawn, Entry, Epoch, Event, Idempotency, Offset, Place, WsId};
pub use level::{BadLevel, TrustLevel};
pub use names::{BadName, LONGEST_NAME, Name, QName};
pub use plan::{Plan, Prepared, RecordWrite, Write, plan};
pub use record::{Parent, Record, RecordId, StoredRecord, TableKind};
pub use schema::{BadRecord, BadSchema, CannotFollow, SINGLETON_IDS, Schema, Table};
pub use value::{FieldType, Value};
pub use wire::Unreadable;
