//! The jobs of the writer, and the reasons why a write is not done.

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

/// A job for the writer.
#[derive(Debug)]
pub(crate) enum WriteJob {
    Write(WriteRequest),
    Create {
        keyspace: Arc<Keyspace>,
        place: QueuePlace,
        reply: oneshot::Sender<Result<()>>,
    },
    Drop {
        keyspace: Arc<Keyspace>,
        place: QueuePlace,
        reply: oneshot::Sender<Result<()>>,
    },
    /// A read failed: open the file again if it has failed.
    Recover,
}

/// A write, with the channel for its answer.
#[derive(Debug)]
pub(crate) struct WriteRequest {
    pub(crate) keyspace: Arc<Keyspace>,
    pub(crate) batch: AtomicBatch,
    pub(crate) deadline: Instant,
    pub(crate) place: QueuePlace,
    pub(crate) reply: oneshot::Sender<Result<Outcome>>,
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

/// The reason why a transaction was given up.
pub(crate) enum Abort {
    /// The request with this index cannot be written, and nothing of it may be written. The other
    /// requests run again without it.
    Spoiled(usize, Error),
    /// Expired rows cannot be removed. The requests can be written without removing them.
    Expiry(FileFailure),
    /// The file failed.
    Failed(FileFailure),
}

impl From<FileFailure> for Abort {
    fn from(failure: FileFailure) -> Abort {
        Abort::Failed(failure)
    }
}
