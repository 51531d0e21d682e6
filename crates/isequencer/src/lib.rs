//! Dense ascending numbers for the events of a partition, given from memory.
//!
//! No number is given twice. Neither the memory nor the start grows with the length of the log.
//!
//! A [`Sequencer`] belongs to a partition of an event log. It gives the offset of the next event,
//! and the numbers that the event needs in its workspace:
//!
//! ```
//! # use std::sync::Arc;
//! # use isequencer::{
//! #     MemSeqStorage, Params, Sequencer, Sequences, WsId, WsKind, clock::Clock, standard,
//! # };
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (kind, ws) = (WsKind(1), WsId(7));
//! let sequences = Sequences::new().with(kind, standard::sequences())?;
//! let params = Params::new("partition 1", sequences);
//! let mut sequencer = Sequencer::new(params, Arc::new(MemSeqStorage::new()), Clock::system());
//!
//! sequencer.ready().await?;
//! let mut transaction = sequencer.start()?;
//! let mut command = transaction.join(kind, ws).await?;
//! assert_eq!(command.next(standard::WLOG_OFFSET)?, 1);
//! assert_eq!(command.next(standard::RECORD_ID)?, 322_680_000_131_072);
//! let offset = command.keep(); // from now on its event may be written
//! assert_eq!(offset.0, 1);
//! // Write the event at this offset here, and apply it. If that fails: `transaction.actualize()`.
//! transaction.flush(); // the event is in the log, and applied
//! # Ok(())
//! # }
//! ```
//!
//! - [`SeqStorage`] is the port to the storage. [`MemSeqStorage`] implements the port for tests.
//! - [`Sequences`] declares the sequences of each kind of workspace. Every workspace has the
//!   [`standard`] sequences.
//! - [`EventSequencerFactory`] is for callers that write one event at a time.
//!
//! `docs/sequencing.md` explains the algorithm, and why it never gives a number twice.

// The example of the README is compiled as a test.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod cache;
mod command;
mod defect;
mod engine;
mod errors;
mod event;
mod keeper;
pub mod mem;
mod meters;
mod monitor;
mod sequencer;
mod sequences;
mod shared;
pub mod standard;
mod status;
mod storage;
#[cfg(test)]
mod tests;
mod transaction;
mod types;

pub use base::{Offset, WsId};
pub use command::JoinedCommand;
pub use engine::Unflushed;
pub use errors::{DrawError, JoinError};
pub use event::{
    EventSequencer, EventSequencerFactory, SeqStorageFactory, SequencedEvent, StartError,
};
pub use mem::MemSeqStorage;
pub use monitor::Monitor;
pub use sequencer::{CloseError, Params, Sequencer, SequencerBusy};
pub use sequences::{BadSequences, Sequence, Sequences};
pub use status::{SequenceStatus, StatusMonitor};
pub use storage::{LoggedEvent, SeqStorage, StorageError};
pub use transaction::Transaction;
pub use types::{NumberKey, SeqId, WsKind};

// The types of these crates occur in the API.
pub use async_trait::async_trait;
pub use clock;
pub use futures;
