//! The state of a partition that its groups share.

use std::sync::Arc;

use base::with_causes;
use clock::Clock;
use eventlog::{AppRow, Error, LogWriter, Offset, WsId};
use futures::TryStreamExt;
use isequencer::{SeqStorage, StorageError, WsKind, standard};
use lru::LruCache;

use crate::{
    Application, WriteAllowance,
    event_time::EventTime,
    known_rows::KnownRows,
    lost_counters::LostCounters,
    state::{GroupView, LogEnd, Overlay},
};

/// The state of a partition that its groups share.
#[derive(Debug)]
pub(crate) struct PartitionContext {
    pub(crate) application: Arc<Application>,
    pub(crate) log: Arc<LogWriter>,
    /// The storage of the numbers. Only the sequencer writes to it.
    pub(crate) numbers: Arc<dyn SeqStorage>,
    pub(crate) clock: Clock,
    /// The kinds of the workspaces that were used last. They have stored descriptors.
    pub(crate) kinds: LruCache<WsId, WsKind>,
    pub(crate) lost_counters: LostCounters,
    pub(crate) write_allowance: WriteAllowance,
    pub(crate) time: EventTime,
    /// The end of the log as this node knows it.
    pub(crate) log_end: LogEnd,
    /// Rows named unseen events up to this offset. The next replay looks for these events.
    pub(crate) search_to: Offset,
}

impl PartitionContext {
    /// The view of a group with these changes and these rows that were read ahead.
    pub(crate) fn view<'g>(
        &'g self,
        overlay: &'g Overlay,
        known_rows: &'g KnownRows,
    ) -> GroupView<'g> {
        let Self { log, lost_counters, .. } = self;
        GroupView { overlay, known_rows, log, log_end: self.log_end, lost_counters }
    }

    /// Whether no late write of a former leader can put an event at the end of the log any more. A
    /// log that has no offset left needs no fence.
    pub(crate) fn is_fenced(&self) -> bool {
        self.log_end.next > Offset::LAST || self.log.is_fenced(self.log_end.epoch)
    }

    /// Reads rows and numbers that no command needs. Returns the reason if the storage does not
    /// answer.
    ///
    /// A simpler version reads the row of the failed command again. If the storage cannot read only
    /// this row, the partition would also refuse commands that need other rows.
    pub(crate) async fn read_error(&self) -> Option<String> {
        let (partition, next) = (self.log.partition(), self.log_end.next);
        let rows = async {
            self.log.reader().row(AppRow::Plog(partition, next)).await?;
            self.log.reader().plog(partition, next, None).try_next().await
        };
        if let Err(error) = rows.await
            && !error.is_lasting()
        {
            return Some(format!("rows cannot be read: {}", with_causes(&error)));
        }
        // No workspace has the number 0, so nothing depends on the content of this row.
        let numbers = self.numbers.read_numbers(WsId(0), &[standard::WLOG_OFFSET]);
        match numbers.await {
            Err(error) if !is_lasting(&error) => {
                Some(format!("numbers cannot be read: {}", with_causes(&error)))
            }
            _ => None,
        }
    }
}

/// Whether an error of the numbers stays until an operator corrects the cause.
pub(crate) fn is_lasting(error: &StorageError) -> bool {
    error.0.downcast_ref::<Error>().is_some_and(Error::is_lasting)
}
