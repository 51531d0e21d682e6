//! The port to the storage: the stored numbers, and the log, where numbers can be found again.

use std::fmt;

use async_trait::async_trait;
use futures::stream::BoxStream;

use crate::{NumberKey, Offset, SeqId, WsId};

/// The numbers that an entry of the log drew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedEvent {
    /// The offset of the entry in the log.
    pub offset: Offset,
    /// The last number of each sequence that the event drew from. The order is free, and a sequence
    /// may occur several times. An entry without an event drew no number.
    pub numbers: Vec<(NumberKey, u64)>,
}

/// A call to the storage failed.
///
/// The keeper tries again without a limit when it reads the log or stores numbers. A read for a
/// command that joins fails with [an error](crate::JoinError::Storage).
#[derive(Debug, thiserror::Error)]
#[error("sequencer storage error")]
pub struct StorageError(#[source] pub Box<dyn std::error::Error + Send + Sync>);

/// The storage of the numbers of one partition, and the log of the partition.
///
/// A value of this type belongs to one sequencer, and to one leadership of the partition.
///
/// A stored number is the last one that was given. The stored offset is the offset of the next
/// event to replay.
///
/// Every call may fail. A failed call may still be done, even later. So the guarantees of
/// [`write`](SeqStorage::write) must hold whatever the order of the writes' arrival.
///
/// Every call ends within a time limit of its own.
#[async_trait]
pub trait SeqStorage: fmt::Debug + Send + Sync + 'static {
    /// Reads the stored numbers of a workspace, in the order of `seqs`; 0 for a sequence without a
    /// stored number.
    ///
    /// The read sees every write that was answered before the call.
    async fn read_numbers(&self, ws: WsId, seqs: &[SeqId]) -> Result<Vec<u64>, StorageError>;

    /// Reads the stored offset; [`Offset::FIRST`] if no offset is stored.
    async fn next_offset(&self) -> Result<Offset, StorageError>;

    /// Stores numbers, each of a different sequence, and the offset. The offset is stored after all
    /// numbers, or at the same moment.
    ///
    /// A stored number is never replaced by a lower one. The stored offset is never replaced by the
    /// offset of an earlier leadership, or by a lower one of the same leadership.
    async fn write(&self, numbers: &[(NumberKey, u64)], next: Offset) -> Result<(), StorageError>;

    /// Reads the entries of the log from this offset to the end, without gaps, with the numbers
    /// that each event drew. Every entry takes an offset, even one without an event.
    ///
    /// An event must be applied before it is returned: the caller stores the offset after the
    /// event, and relies on the event being applied.
    fn events(&self, from: Offset) -> BoxStream<'_, Result<LoggedEvent, StorageError>>;
}
