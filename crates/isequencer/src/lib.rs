//! Dense monotonic numbers that are never given twice.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod cache;
mod defect;
mod event;
mod keeper;
mod mem;
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

pub use event::{
    Event, EventSequencer, EventSequences, NotStarted, Status, StatusMonitor, StorageOf,
};
pub use mem::{Call, Fate, Hook, MemStorage};
pub use sequencer::{Busy, Monitor, NotFlushed, Params, Sequencer};
pub use sequences::{BadSequences, Sequence, Sequences};
pub use storage::{LoggedEvent, SeqStorage, StorageError};
pub use transaction::{Command, NoNumber, NotJoined, Transaction};
pub use types::{NumberKey, Offset, SeqId, WsId, WsKind};
