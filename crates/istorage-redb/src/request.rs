//! The jobs of the writer.

use std::sync::Arc;

use clock::Instant;
use istorage::{AtomicBatch, Outcome, Result};
use tokio::sync::oneshot;

use crate::{
    backup::BackupRun,
    layout::{Keyspace, KeyspaceChange},
    queue::QueuePlace,
};

/// A job for the writer.
pub(crate) enum WriteJob {
    Write(WriteRequest),
    Change {
        change: KeyspaceChange,
        place: QueuePlace,
        reply: oneshot::Sender<Result<()>>,
    },
    /// Takes the snapshot of a backup.
    Backup {
        place: QueuePlace,
        reply: oneshot::Sender<Result<BackupRun>>,
    },
    /// A read failed: look whether the file and its log work.
    Check,
}

/// A write, with the channel for its answer.
pub(crate) struct WriteRequest {
    pub(crate) keyspace: Arc<Keyspace>,
    pub(crate) batch: AtomicBatch,
    pub(crate) deadline: Instant,
    pub(crate) place: QueuePlace,
    pub(crate) reply: oneshot::Sender<Result<Outcome>>,
}

impl WriteRequest {
    pub(crate) fn answer(self, answer: Result<Outcome>) {
        // A caller that no longer waits needs no answer.
        let _ = self.reply.send(answer);
    }
}
