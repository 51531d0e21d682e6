//! Readers that wait for events. Each hears when events of its log were applied.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex},
};

use base::locks::lock;
use eventlog::WsId;
use tokio::sync::watch;

/// The logs of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogName {
    /// The log of the partition (PLog).
    Partition,
    /// The log of a workspace (WLog).
    Workspace(WsId),
}

/// The readers that wait for events of a partition.
///
/// Each workspace has a channel of its own, so that a reader is not woken by the events of other
/// workspaces.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogWatchers(Arc<Mutex<WatchersState>>);

#[derive(Debug, Default)]
struct WatchersState {
    has_ended: bool,
    /// The number of changes of each log that somebody watches.
    changes: HashMap<LogName, watch::Sender<u64>>,
}

impl LogWatchers {
    /// Watches a log.
    pub(crate) fn watch(&self, log: LogName) -> LogWatch {
        let changes = {
            let mut state = lock(&self.0);
            match state.has_ended {
                // The sender is dropped at once.
                true => watch::channel(0).1,
                false => {
                    state.changes.entry(log).or_insert_with(|| watch::channel(0).0).subscribe()
                }
            }
        };
        LogWatch { watchers: self.clone(), log, changes: Some(changes) }
    }

    /// Reports that events of these workspaces were applied.
    pub(crate) fn applied(&self, workspaces: impl IntoIterator<Item = WsId>) {
        let state = lock(&self.0);
        if state.changes.is_empty() {
            return;
        }
        let mut last = None;
        for ws in workspaces {
            // The events of a workspace often stand side by side.
            if last != Some(ws) {
                state.note(LogName::Workspace(ws));
            }
            last = Some(ws);
        }
        state.note(LogName::Partition);
    }

    /// Reports that events of any workspace may have been applied.
    pub(crate) fn applied_some(&self) {
        let state = lock(&self.0);
        state.changes.keys().for_each(|log| state.note(*log));
    }

    /// Reports that the partition has ended.
    pub(crate) fn end(&self) {
        let mut state = lock(&self.0);
        state.has_ended = true;
        state.changes.clear();
    }
}

impl WatchersState {
    fn note(&self, log: LogName) {
        if let Some(changes) = self.changes.get(&log) {
            changes.send_modify(|count| *count += 1);
        }
    }
}

/// Tells when the log of a partition or of a workspace may have more events.
pub struct LogWatch {
    watchers: LogWatchers,
    log: LogName,
    /// `None` only while the watch is being dropped.
    changes: Option<watch::Receiver<u64>>,
}

/// The partition has ended at this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the partition has ended at this node")]
pub struct PartitionEnded;

impl LogWatch {
    /// The number of changes of the log. It counts from the first of the watches that exist at the
    /// same time.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes.as_ref().map_or(0, |changes| *changes.borrow())
    }

    /// Waits until the number of changes is higher than `known`. The events before a change are
    /// applied: a read that begins after this call sees them.
    ///
    /// # Errors
    /// If the partition has ended.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn changed(&mut self, known: u64) -> Result<u64, PartitionEnded> {
        let Some(changes) = &mut self.changes else { return Err(PartitionEnded) };
        let changed = changes.wait_for(|count| *count > known).await;
        changed.map(|count| *count).map_err(|_| PartitionEnded)
    }

    /// Waits until the partition has ended.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn ended(&mut self) {
        if let Some(changes) = &mut self.changes {
            // Only the end of the sender ends this wait.
            let _ended = changes.wait_for(|_| false).await;
        }
    }
}

impl Drop for LogWatch {
    fn drop(&mut self) {
        let mut state = lock(&self.watchers.0);
        // The receiver is dropped under the lock. Otherwise two last ones could each count the
        // other.
        self.changes = None;
        if state.changes.get(&self.log).is_some_and(|changes| changes.receiver_count() == 0) {
            state.changes.remove(&self.log);
        }
    }
}

impl fmt::Debug for LogWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogWatch").field("log", &self.log).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_watch_is_told_of_the_events_of_its_log_and_of_no_others() {
        let watchers = LogWatchers::default();
        let mut one = watchers.watch(LogName::Workspace(WsId(1)));
        let mut all = watchers.watch(LogName::Partition);
        watchers.applied([WsId(2), WsId(2), WsId(3)]);
        assert_eq!(one.changed(0).now_or_never(), None);
        assert_eq!(all.changed(0).now_or_never(), Some(Ok(1)));
        watchers.applied([WsId(2), WsId(1)]);
        assert_eq!(one.changed(0).now_or_never(), Some(Ok(1)));
        assert_eq!(one.changed(1).now_or_never(), None);
        watchers.applied_some();
        assert_eq!(one.changed(1).now_or_never(), Some(Ok(2)));
        assert_eq!(all.changes(), 3);
    }

    #[test]
    fn a_log_that_nobody_watches_any_more_is_forgotten() {
        let watchers = LogWatchers::default();
        let watches: Vec<_> = (0..3).map(|_| watchers.watch(LogName::Workspace(WsId(1)))).collect();
        let count = || lock(&watchers.0).changes.len();
        assert_eq!(count(), 1);
        drop(watches);
        assert_eq!(count(), 0);
    }

    #[test]
    fn the_end_of_the_partition_ends_each_watch() {
        let watchers = LogWatchers::default();
        let mut before = watchers.watch(LogName::Partition);
        watchers.applied([WsId(1)]);
        assert_eq!(before.ended().now_or_never(), None, "a change is not the end");
        watchers.end();
        // A change before the end is still reported.
        assert_eq!(before.changed(0).now_or_never(), Some(Ok(1)));
        assert_eq!(before.changed(1).now_or_never(), Some(Err(PartitionEnded)));
        assert_eq!(before.ended().now_or_never(), Some(()));
        let mut after = watchers.watch(LogName::Partition);
        assert_eq!(after.changed(0).now_or_never(), Some(Err(PartitionEnded)));
    }
}
