//! The event logs of an application, and the rows that follow from its events.
//!
//! An application has partitions, and each partition has a log in a storage of `istorage`. The
//! leader of the partition writes groups of events at the end of the log. Then it writes what
//! follows from them: the logs of workspaces, records, and stored answers. An event in the log is
//! not undone. After a takeover, the next leader reads the end of the log, and writes the rows that
//! are missing.
//!
//! ```
//! use std::{num::NonZeroU16, sync::Arc, time::Duration};
//!
//! use eventlog::{
//!     Entry, Epoch, Event, EventPlace, LogSettings, LogWriter, Offset, PreparedEvent,
//!     SingleNodeFence, WsId,
//!     clock::{Clock, WallTime},
//!     futures::TryStreamExt,
//!     istorage::{KeyspaceName, StorageDriver, mem::MemDriver},
//! };
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let clock = Clock::system();
//! # let (driver, name) = (MemDriver::new(clock.clone()), KeyspaceName::new("shop")?);
//! # let deadline = clock.now() + Duration::from_secs(5);
//! # driver.create(&name, deadline).await?;
//! # let storage = driver.open(&name, deadline).await?.expect("it was just created");
//! let settings = LogSettings::new(NonZeroU16::new(4).expect("it is not zero"));
//! let fence = Arc::new(SingleNodeFence(Epoch(1))); // this is the only node
//! let log = LogWriter::new(storage, clock, fence, 3, settings);
//!
//! // A leader begins with a replay. Then it knows the end of the log.
//! let replayed: Vec<Entry> = log.replay(Offset::FIRST).try_collect().await?;
//! assert!(replayed.is_empty());
//!
//! let place =
//!     EventPlace { epoch: Epoch(1), plog: log.tail().next, ws: WsId(7), wlog: Offset(1) };
//! let event = Event::new(place, WallTime::from_millis(1_001), "sys.CUD".parse()?);
//! let outcome = log.write(&[PreparedEvent::new(&event, |_| None)]).await;
//! assert_eq!(outcome.committed, 1); // the event is in the log
//! outcome.applied?; // the rows that follow from it are written
//!
//! let read: Vec<Entry> = log.reader().wlog(WsId(7), Offset(1), None).try_collect().await?;
//! assert_eq!(read, [Entry::Event(Box::new(event))]);
//! # Ok(())
//! # }
//! ```
//!
//! # Types
//!
//! - A [`LogWriter`] is the log of a partition, for its leader. It [writes](LogWriter::write)
//!   [`PreparedEvent`]s as its [`TrustLevel`] says, [replays](LogWriter::replay) the log, and knows
//!   the [versions of records](AcknowledgedVersions) that the storage has acknowledged.
//! - It asks its [`LogFence`] before each write. The [`Fence`] that the caller gives proves that
//!   the node leads.
//! - A [`Reader`] reads logs and records, and needs no leadership.
//! - [`Event`], [`Marker`] and [`FencingEntry`] are the kinds of [`Entry`] in a log. A [`Record`]
//!   is an entry of a table. An [`AppRow`] names the row of any of them.
//! - A [`Schema`] declares the tables. A [`Deployment`] stores the schema and the trust level
//!   beside the rows.
//! - An [`Error`] says what its caller must do. If an operator must act, it has an [`Obstacle`]. A
//!   [`LogRepair`] does what the operator decides.
//! - A [`LogCopier`] writes a log that was [read](LogWriter::entries) in another keyspace.
//!
//! `docs/event-format.md` has the bytes, `docs/trust-levels.md` the guarantees of each level, and
//! `docs/recovery.md` the steps of a replay.

// The example of the README is compiled as a test.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

// Each of these types uses only types before it in this list: `LogFence`, `Reader`,
// `AcknowledgedVersions` and `Tail`; `Calls`, `Strays`, `Applier`, `LogWriter`; then `PlogEntries`,
// `Replay`, `LogRepair` and `LogCopier`. The methods of `LogWriter` that begin a replay stand
// beside `Replay`.
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
mod writer;

pub use acknowledged::AcknowledgedVersions;
pub use app_row::{AppRow, DamagedRow};
pub use base::{Epoch, Offset, WsId};
pub use copy::{LogCopier, largest_row_of};
pub use deployment::{Deployment, DeploymentError, LevelChange};
pub use error::{Error, Result, Violation};
pub use event::{
    DrawnNumber, Entry, Event, EventPlace, FencingEntry, Idempotency, Marker, RecordChange,
    StoredAnswer,
};
pub use fence::{Fence, LeadershipLost, LogFence, SingleNodeFence};
pub use fields::Fields;
pub use names::{InvalidName, Name, QName};
pub use obstacle::{Obstacle, Repair};
pub use prepared::PreparedEvent;
pub use reader::{Reader, RecordBlock};
pub use record::{Parent, Record, StoredRecord, TableKind, Version};
pub use repair::{
    DamagedEvent, DamagedFencing, EventNeighbours, LogRepair, PlaceCandidate, PlaceEvidence,
    SEARCHED_EVENTS, row_digest,
};
pub use schema::{
    BrokenRule, FieldRules, IncompatibleSchema, InvalidRecord, InvalidSchema, SINGLETON_IDS,
    Schema, Stamp, Table,
};
pub use settings::LogSettings;
pub use trust_level::{InvalidTrustLevel, TrustLevel};
pub use value::{FieldType, RecordId, Value};
pub use wire::{DecodeError, row_formats};
pub use writer::{LogWriter, Tail, WriteOutcome};

// The types of these crates occur in the API.
pub use bytes;
pub use clock;
pub use futures;
pub use istorage;
