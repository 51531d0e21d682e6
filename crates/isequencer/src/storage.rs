//! The port: where numbers are kept, and the log from which they can be found again.

use std::fmt;

use async_trait::async_trait;
use futures::stream::BoxStream;

use crate::{NumberKey, Offset, SeqId, WsId};

/// What an event of the log drew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedEvent {
    /// Where it is in the log.
    pub offset: Offset,
    /// Of each sequence that it drew from, the last number; in any order, and a sequence may come several times.
    pub numbers: Vec<(NumberKey, u64)>,
}

/// A call to the storage failed. Reading the log and storing numbers is tried again for as long as it takes; a read for a command that joins is
/// [its error](crate::NotJoined::Storage).
#[derive(Debug, thiserror::Error)]
#[error("the storage of numbers does not do what it is asked to")]
pub struct StorageError(#[source] pub Box<dyn std::error::Error + Send + Sync>);

/// The storage of the numbers of one partition, and its log. It belongs to one sequencer, and to the leadership
/// under which that gives out numbers.
///
/// A stored number is the last one that was given; the stored offset is that of the next event to replay. Every call may fail, and then
/// may be done nevertheless, even later; so what is told of [`write`](SeqStorage::write) must be true whatever the order in which writes arrive.
/// Every call ends, in a time of its own.
#[async_trait]
pub trait SeqStorage: fmt::Debug + Send + Sync + 'static {
    /// The stored numbers of a workspace, in the order of `seqs`; 0 where nothing is stored. It sees every write that was
    /// answered before.
    async fn read_numbers(&self, ws: WsId, seqs: &[SeqId]) -> Result<Vec<u64>, StorageError>;

    /// The stored offset; [`Offset::FIRST`] if there is none.
    async fn next_offset(&self) -> Result<Offset, StorageError>;

    /// Stores numbers, each of another sequence, and when all of them are stored, or at the same moment, the offset. A number that is
    /// stored already is never replaced by a lower one, and the offset never by that of an earlier leadership or a lower one of the same.
    async fn write(&self, numbers: &[(NumberKey, u64)], next: Offset) -> Result<(), StorageError>;

    /// What each event drew, from this offset to the end of the log, one event after another without a gap. Whoever stores the offset behind
    /// an event relies on it being applied, so an event comes when it is.
    fn events(&self, from: Offset) -> BoxStream<'_, Result<LoggedEvent, StorageError>>;
}
