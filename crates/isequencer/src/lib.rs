//! Dense ascending numbers that are never given twice, from memory that does not grow, with a start that does not grow either.
//!
//! A [`Sequencer`] belongs to a partition of an event log. It says at which offset the next event is written, and gives the numbers that
//! the event needs in its workspace:
//!
//! ```
//! # use std::sync::Arc;
//! # use clock::Clock;
//! # use isequencer::{MemStorage, Params, Sequencer, Sequences, WsId, WsKind, standard};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (kind, ws) = (WsKind(1), WsId(7));
//! let sequences = Sequences::new().with(kind, standard::sequences())?;
//! let params = Params::new("partition 1", sequences);
//! let mut sequencer = Sequencer::new(params, Arc::new(MemStorage::new()), Clock::system());
//!
//! sequencer.ready().await?;
//! let mut transaction = sequencer.start()?;
//! let mut command = transaction.join(kind, ws).await?;
//! assert_eq!(command.next(standard::WLOG_OFFSET)?, 1);
//! assert_eq!(command.next(standard::RECORD_ID)?, 322_680_000_131_072);
//! let offset = command.keep(); // from now on its event may be written
//! assert_eq!(offset.get(), 1);
//! transaction.flush(); // it is in the log, and applied
//! # Ok(())
//! # }
//! ```
//!
//! - [`SeqStorage`] is what it needs of a storage, [`MemStorage`] one for tests.
//! - [`Sequences`] are declared by kind of workspace; the [`standard`] ones are those that every workspace has.
//! - [`EventSequencerFactory`] is for who writes one event at a time.
//!
//! The algorithm, and why it holds, is in `docs/sequencing.md`.

#![cfg_attr(test, allow(clippy::unwrap_used))]

/// Its examples run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/sequencing.md")]
struct Page;

mod cache;
mod causes;
mod defect;
mod engine;
mod event;
mod keeper;
pub mod mem;
mod meters;
mod sequencer;
mod sequences;
mod shared;
pub mod standard;
mod storage;
#[cfg(test)]
mod tests;
mod transaction;
mod types;

pub use causes::in_full;
pub use engine::Unflushed;
pub use event::{
    Event, EventSequencer, EventSequencerFactory, NotStarted, Status, StatusMonitor, StorageOf,
};
pub use mem::MemStorage;
pub use sequencer::{Busy, Monitor, NotClosed, Params, Sequencer};
pub use sequences::{BadSequences, Sequence, Sequences};
pub use storage::{LoggedEvent, SeqStorage, StorageError};
pub use transaction::{Command, NoNumber, NotJoined, Transaction};
pub use types::{NumberKey, Offset, SeqId, WsId, WsKind};
