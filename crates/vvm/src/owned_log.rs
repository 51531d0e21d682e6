//! A log of a partition at its owner, for readers that may outlive the request.

use std::{fmt, sync::Arc};

use eventlog::{Entry, Offset, WsId};
use futures::stream::BoxStream;
use isequencer::standard;
use processor::{Busy, Commands, LogName, LogWatch};
use seqstorage::PartitionStorage;

/// A log of a partition that this node owns.
///
/// It belongs to one ownership: when the partition ends here, reads still show what was applied,
/// and [`OwnedLog::may_answer`] and the [watch](OwnedLog::watch) tell that this node is not the
/// owner.
#[derive(Clone)]
pub struct OwnedLog {
    commands: Arc<Commands>,
    storage: Arc<PartitionStorage>,
    name: LogName,
}

impl OwnedLog {
    pub(crate) fn new(
        commands: Arc<Commands>,
        storage: Arc<PartitionStorage>,
        name: LogName,
    ) -> Self {
        OwnedLog { commands, storage, name }
    }

    /// The log.
    pub fn name(&self) -> LogName {
        self.name
    }

    /// Reads the log from an event on, up to the last event that is applied. If an event is missing
    /// or damaged, the stream ends with an error, and the status of the partition reports the row.
    ///
    /// # Errors
    /// The reason why the PLog was not read yet.
    pub fn read(&self, from: Offset) -> Result<BoxStream<'static, eventlog::Result<Entry>>, Busy> {
        match self.name {
            LogName::Partition => self.commands.plog(from),
            LogName::Workspace(ws) => self.commands.wlog(ws, from, self.stored(ws)),
        }
    }

    /// The offset of the first event that was not applied yet when this call began, or a later one
    /// if events were applied meanwhile.
    ///
    /// # Errors
    /// The reason why the PLog was not read yet, or the error of the storage.
    pub async fn end(&self) -> Result<eventlog::Result<Offset>, Busy> {
        match self.name {
            LogName::Partition => self.commands.applied().map(Ok),
            LogName::Workspace(ws) => self.commands.wlog_end(ws, || self.stored(ws)).await,
        }
    }

    /// Watches the log. A watch that began before a read tells of all events that the read does not
    /// show.
    #[must_use]
    pub fn watch(&self) -> LogWatch {
        self.commands.watch(self.name)
    }

    /// Whether this node still owns the partition, by the clock. Only then may a reader get what
    /// was read.
    #[must_use]
    pub fn may_answer(&self) -> bool {
        self.commands.may_answer()
    }

    fn stored(
        &self,
        ws: WsId,
    ) -> impl Future<Output = eventlog::Result<Option<u64>>> + Send + use<> {
        let storage = Arc::clone(&self.storage);
        async move { storage.stored_number(ws, standard::WLOG_OFFSET).await }
    }
}

impl fmt::Debug for OwnedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedLog").field("name", &self.name).finish_non_exhaustive()
    }
}
