//! The threads that read: each thread takes the waiting jobs and answers them from one view.
//!
//! Views are short. Each page of a stream is a job of its own, so a slow consumer keeps no old
//! pages of the file alive. A read waits for no write.
//!
//! Invariant: a damaged row or page fails only the reads that need that row or page.

mod page;
mod partitions;

use std::{collections::VecDeque, sync::Arc};

use async_channel::{Receiver, Sender};
use bytes::Bytes;
use istorage::{FoundRow, Range, Result};
use tokio::sync::oneshot;

pub(crate) use self::{page::Page, partitions::PartitionPage};
use crate::{
    backup::BackupRun,
    file::StorageFile,
    layout::Keyspace,
    request::WriteJob,
    tables::Tables,
    time::Moment,
    view::{RowView, is_unavailable},
};

/// The largest number of jobs that share a snapshot.
const GROUP: usize = 16;

type Reply<T> = oneshot::Sender<Result<T>>;

/// A job for a reader, with the channel for its answer. `now` is the time that judges the expiry of
/// the rows. The caller reads the time once for all keys of a call, and once for each page.
#[derive(Debug)]
pub(crate) enum ReadJob {
    Rows {
        keyspace: Arc<Keyspace>,
        keys: Vec<Vec<u8>>,
        now: Moment,
        reply: Reply<Vec<Option<FoundRow>>>,
    },
    Page {
        keyspace: Arc<Keyspace>,
        pkey: Bytes,
        range: Range,
        now: Moment,
        reply: Reply<Page>,
    },
    /// The keys of partitions that begin with `prefix`, from the row with the key `from` on.
    Partitions {
        keyspace: Arc<Keyspace>,
        prefix: Bytes,
        from: Vec<u8>,
        reply: Reply<PartitionPage>,
    },
    Exists {
        keyspace: Arc<Keyspace>,
        reply: Reply<bool>,
    },
    /// Reads the next piece of a backup.
    BackupPiece {
        run: BackupRun,
        reply: Reply<(BackupRun, Option<Bytes>)>,
    },
}

/// One of the threads that read.
#[derive(Debug)]
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
                failed |= !answer(&mut view, job, group.is_empty());
            }
            // If the queue is full, the writer finds the failure by itself.
            if failed {
                let _ = self.writer.try_send(WriteJob::Check);
            }
        }
    }
}

/// Answers the job. Returns `false` if the file failed.
///
/// The snapshot ends before the last answer of a view. So a caller that has its answer keeps no
/// pages of the file from being used again.
fn answer(view: &mut RowView, job: ReadJob, is_last: bool) -> bool {
    match job {
        ReadJob::Rows { keyspace, keys, now, reply } => {
            answer_with(reply, &keyspace, view, is_last, |view| rows(view, &keyspace, &keys, now))
        }
        ReadJob::Page { keyspace, pkey, range, now, reply } => {
            answer_with(reply, &keyspace, view, is_last, |view| {
                page::read(view, &keyspace, &pkey, &range, now)
            })
        }
        ReadJob::Partitions { keyspace, prefix, from, reply } => {
            answer_with(reply, &keyspace, view, is_last, |view| {
                partitions::read(view, &keyspace, &prefix, from.clone())
            })
        }
        ReadJob::Exists { keyspace, reply } => {
            answer_with(reply, &keyspace, view, is_last, |view| exists(view, &keyspace))
        }
        ReadJob::BackupPiece { mut run, reply } => {
            if reply.is_closed() {
                return true;
            }
            let piece = run.piece();
            let healthy = !piece.as_ref().is_err_and(is_unavailable);
            // A caller that no longer waits needs no answer.
            let _ = reply.send(piece.map(|piece| (run, piece)));
            healthy
        }
    }
}

/// Runs the read, unless its caller no longer waits. Returns `false` if the file failed.
fn answer_with<T>(
    reply: Reply<T>,
    keyspace: &Keyspace,
    view: &mut RowView,
    is_last: bool,
    read: impl Fn(&mut RowView) -> Result<T>,
) -> bool {
    if reply.is_closed() {
        return true;
    }
    let result = view.again(keyspace, read);
    let healthy = !result.as_ref().is_err_and(is_unavailable);
    if is_last {
        view.forget();
    }
    // A caller that no longer waits needs no answer.
    let _ = reply.send(result);
    healthy
}

/// Reads rows as they are at one moment.
fn rows(
    view: &mut RowView,
    keyspace: &Keyspace,
    keys: &[Vec<u8>],
    now: Moment,
) -> Result<Vec<Option<FoundRow>>> {
    let in_memory = view.in_memory(keyspace, keys)?;
    let rows = keys.iter().zip(in_memory).map(|(key, known)| {
        let row = match known {
            Some(row) => row,
            None => view.row_in_file(keyspace, key)?,
        };
        let row = row.as_ref().map(|row| keyspace.parse_row(key, row)).transpose()?;
        Ok(row.and_then(|row| {
            let hides_ordered = row.hides_ordered();
            row.value_at(now).map(|value| FoundRow { value, hides_ordered })
        }))
    });
    rows.collect()
}

fn exists(view: &mut RowView, keyspace: &Keyspace) -> Result<bool> {
    view.of_one_moment(|_| ())?;
    Ok(view.find_table(keyspace)?.is_some())
}
