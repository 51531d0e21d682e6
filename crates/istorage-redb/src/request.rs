//! The write of one caller, and the reasons why it is not written.

use std::sync::Arc;

use clock::Instant;
use istorage::{AtomicBatch, Error, Outcome, Result};
use redb::{StorageError, TableError};
use tokio::sync::oneshot;

use crate::{
    errors::FileFailure,
    layout::{self, Keyspace},
    queue::QueuePlace,
};

/// A write, with the channel for its answer.
#[derive(Debug)]
pub(crate) struct WriteRequest {
    pub(crate) keyspace: Arc<Keyspace>,
    pub(crate) batch: AtomicBatch,
    pub(crate) deadline: Instant,
    pub(crate) place: QueuePlace,
    pub(crate) reply: oneshot::Sender<Result<Outcome>>,
}

/// The approximate number of bytes that a write adds to a transaction.
pub(crate) fn bytes_of(batch: &AtomicBatch) -> usize {
    let conditionals = batch.conditionals.iter().map(|(pkey, op)| {
        pkey.len() + op.ccols().len() + op.written().map_or(0, |value| value.len())
    });
    let ordered = batch.ordered.iter().map(|put| (&put.key, &put.value));
    let puts = batch.puts.iter().map(|put| (&put.key, &put.value));
    let others =
        ordered.chain(puts).map(|(key, value)| key.pkey.len() + key.ccols.len() + value.len());
    conditionals.chain(others).sum()
}

impl WriteRequest {
    /// The keys of the rows that the request writes.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Vec<u8>> {
        let batch = &self.batch;
        let conditionals = batch.conditionals.iter().map(|(pkey, op)| (pkey, op.ccols()));
        let ordered = batch.ordered.iter().map(|put| &put.key);
        let puts = ordered.chain(batch.puts.iter().map(|put| &put.key));
        let rows = conditionals.chain(puts.map(|key| (&key.pkey, &key.ccols)));
        rows.map(|(pkey, ccols)| layout::row_key(pkey, ccols))
    }

    pub(crate) fn answer(self, answer: Result<Outcome>) {
        // A caller that no longer waits needs no answer.
        let _ = self.reply.send(answer);
    }
}

/// The reason why a request was not written.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// The request is wrong. Nothing of it is in the transaction.
    Refused(Error),
    /// The request is wrong, and a part of it is in the transaction. The transaction must be given
    /// up.
    Spoiled(Error),
    /// The file failed. The transaction must be given up.
    Failed(FileFailure),
}

impl From<Error> for RequestError {
    fn from(error: Error) -> RequestError {
        RequestError::Refused(error)
    }
}

impl From<StorageError> for RequestError {
    fn from(error: StorageError) -> RequestError {
        RequestError::Failed(error.into())
    }
}

impl From<TableError> for RequestError {
    fn from(error: TableError) -> RequestError {
        RequestError::Failed(error.into())
    }
}

/// The result of a part of a request.
pub(crate) type RequestResult<T> = std::result::Result<T, RequestError>;
