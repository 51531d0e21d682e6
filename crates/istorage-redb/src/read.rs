//! The threads that read: each thread takes the waiting jobs and answers them from one view.
//!
//! Views are short. Each page of a stream is a job of its own, so a slow consumer keeps no old
//! pages of the file alive. A read waits for no write.
//!
//! Invariant: a damaged row or page fails only the reads that need that row or page.

pub(crate) mod page;
pub(crate) mod partitions;

use std::{collections::VecDeque, sync::Arc};

use async_channel::{Receiver, Sender};
use istorage::{FoundRow, Result};
use tokio::sync::oneshot;

use crate::{
    file::StorageFile,
    layout::Keyspace,
    request::WriteJob,
    tables::Tables,
    time::Moment,
    view::{RowView, is_unavailable},
};

/// The largest number of jobs that share a snapshot.
const GROUP: usize = 16;

/// A job for a reader: it reads from a view, and answers. It is told whether it is the last job of
/// the view, and returns `false` if the file failed.
pub(crate) type ReadJob = Box<dyn FnOnce(&mut RowView, bool) -> bool + Send>;

/// One of the threads that read.
pub(crate) struct ReaderThread {
    pub(crate) file: Arc<StorageFile>,
    pub(crate) tables: Arc<Tables>,
    pub(crate) jobs: Receiver<ReadJob>,
    pub(crate) writer: Sender<WriteJob>,
}

impl ReaderThread {
    /// Answers jobs until the queue is closed and empty.
    pub(crate) fn run(self) {
        let mut group = VecDeque::with_capacity(GROUP);
        while let Ok(first) = self.jobs.recv_blocking() {
            group.push_back(first);
            while group.len() < GROUP
                && let Ok(next) = self.jobs.try_recv()
            {
                group.push_back(next);
            }
            let mut view = RowView::new(Arc::clone(&self.file), Arc::clone(&self.tables));
            let mut failed = false;
            while let Some(job) = group.pop_front() {
                failed |= !job(&mut view, group.is_empty());
            }
            // If the queue is full, the writer finds the failure by itself.
            if failed {
                let _ = self.writer.try_send(WriteJob::Check);
            }
        }
    }
}

/// Runs a read, unless its caller no longer waits. Returns `false` if the file failed.
///
/// The snapshot ends before the last answer of a view. So a caller that has its answer keeps no
/// pages of the file from being used again.
pub(crate) fn answer<T>(
    view: &mut RowView,
    is_last: bool,
    reply: oneshot::Sender<Result<T>>,
    read: impl FnOnce(&mut RowView) -> Result<T>,
) -> bool {
    if reply.is_closed() {
        return true;
    }
    let result = read(view);
    let healthy = !result.as_ref().is_err_and(is_unavailable);
    if is_last {
        view.forget();
    }
    // A caller that no longer waits needs no answer.
    let _ = reply.send(result);
    healthy
}

/// Reads rows as they are at one moment.
pub(crate) fn rows(
    view: &mut RowView,
    keyspace: &Keyspace,
    keys: &[Vec<u8>],
    now: Moment,
) -> Result<Vec<Option<FoundRow>>> {
    let in_memory = view.in_memory(keyspace, keys)?;
    let rows = keys.iter().zip(in_memory).map(|(key, known)| {
        let row = match known {
            Some(row) => row,
            None => view.search(keyspace, key, false)?,
        };
        let row = row.as_ref().map(|row| keyspace.parse_row(key, row)).transpose()?;
        Ok(row.and_then(|row| {
            let hides_ordered = row.hides_ordered();
            row.value_at(now).map(|value| FoundRow { value, hides_ordered })
        }))
    });
    rows.collect()
}

pub(crate) fn exists(view: &mut RowView, keyspace: &Keyspace) -> Result<bool> {
    view.of_one_moment(|_| ())?;
    Ok(view.find_table(keyspace)?.is_some())
}
