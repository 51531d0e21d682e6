//! The threads that read: each thread takes the waiting jobs and answers them from one snapshot.
//!
//! Snapshots are short. Each page of a stream is a job of its own, so a slow consumer keeps no old
//! pages of the file alive. A read waits for no write, except for the commit in memory of writes
//! that are already answered.
//!
//! Invariant: a damaged row or page fails only the reads that need that row or page.

mod page;
mod partitions;

use std::sync::Arc;

use async_channel::{Receiver, Sender};
use bytes::Bytes;
use istorage::{ErrorKind, FoundRow, Range, Result};
use redb::{ReadTransaction, TableError};
use tokio::sync::oneshot;

use self::page::RowTable;
pub(crate) use self::{page::Page, partitions::PartitionPage};
use crate::{
    backup::BackupRun,
    errors::{self, FileFailure},
    file::StorageFile,
    layout::Keyspace,
    request::WriteJob,
    search,
    time::Moment,
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
    /// Takes the snapshot of a backup, which has the time `now`.
    BeginBackup {
        now: Moment,
        reply: Reply<BackupRun>,
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
    pub(crate) jobs: Receiver<ReadJob>,
    pub(crate) writer: Sender<WriteJob>,
}

impl ReaderThread {
    /// Answers jobs until the queue is closed and empty.
    pub(crate) fn run(self) {
        let mut group = Vec::with_capacity(GROUP);
        while let Ok(first) = self.jobs.recv_blocking() {
            group.push(first);
            while group.len() < GROUP
                && let Ok(next) = self.jobs.try_recv()
            {
                group.push(next);
            }
            let mut snapshot = Snapshot { file: &self.file, txn: None, tables: Vec::new() };
            let mut failed = false;
            for job in group.drain(..) {
                failed |= !snapshot.answer(job);
            }
            // If jobs wait for the writer, it finds the failure by itself.
            if failed && self.writer.is_empty() {
                let _ = self.writer.try_send(WriteJob::Recover);
            }
        }
    }
}

/// A snapshot of the file for a group of jobs, opened by the first job that needs it.
struct Snapshot<'f> {
    file: &'f StorageFile,
    txn: Option<ReadTransaction>,
    tables: Vec<(Arc<Keyspace>, RowTable)>,
}

impl Snapshot<'_> {
    /// Answers the job. Returns `false` if the file failed.
    fn answer(&mut self, job: ReadJob) -> bool {
        match job {
            ReadJob::Rows { keyspace, keys, now, reply } => {
                self.answer_with(reply, &keyspace, |snapshot| {
                    let table = snapshot.table(&keyspace)?;
                    keys.iter().map(|key| get(table, &keyspace, key, now)).collect()
                })
            }
            ReadJob::Page { keyspace, pkey, range, now, reply } => {
                self.answer_with(reply, &keyspace, |snapshot| {
                    page::read(snapshot.table(&keyspace)?, &keyspace, &pkey, &range, now)
                })
            }
            ReadJob::Partitions { keyspace, prefix, from, reply } => {
                self.answer_with(reply, &keyspace, |snapshot| {
                    partitions::read(snapshot.table(&keyspace)?, &keyspace, &prefix, from.clone())
                })
            }
            ReadJob::Exists { keyspace, reply } => {
                self.answer_with(reply, &keyspace, |snapshot| snapshot.exists(&keyspace))
            }
            ReadJob::BeginBackup { now, reply } => {
                answer_backup(reply, || BackupRun::begin(self.file, now))
            }
            ReadJob::BackupPiece { mut run, reply } => answer_backup(reply, || {
                let piece = run.piece()?;
                Ok((run, piece))
            }),
        }
    }

    /// Runs the read, unless its caller no longer waits. Returns `false` if the file failed.
    ///
    /// A read that is `Unavailable` is tried once more with a new snapshot. Without the second try,
    /// one damaged row would fail reads of other rows: a reader takes a snapshot; the writer meets
    /// a damaged page and opens the file again; then every read from the old snapshot fails.
    fn answer_with<T>(
        &mut self,
        reply: Reply<T>,
        keyspace: &Keyspace,
        read: impl Fn(&mut Self) -> Result<T>,
    ) -> bool {
        if reply.is_closed() {
            return true;
        }
        let run = |snapshot: &mut Self| {
            errors::catch_page_error(|| read(snapshot)).unwrap_or_else(|page_error| {
                Err(errors::damaged_row(keyspace.table_label(), page_error))
            })
        };
        let is_unavailable = |result: &Result<T>| matches!(result, Err(error) if error.kind() == ErrorKind::Unavailable);
        let mut result = run(self);
        if is_unavailable(&result) {
            // The writer may have opened the file again, for a reason that has nothing to do with
            // this read.
            (self.txn, self.tables) = (None, Vec::new());
            result = run(self);
        }
        let healthy = !is_unavailable(&result);
        // A caller that no longer waits needs no answer.
        let _ = reply.send(result);
        healthy
    }

    fn txn(&mut self) -> Result<&ReadTransaction> {
        let txn = match self.txn.take() {
            Some(txn) => txn,
            None => self.file.begin_read()?,
        };
        Ok(self.txn.insert(txn))
    }

    fn table(&mut self, keyspace: &Arc<Keyspace>) -> Result<&RowTable> {
        let known = self.tables.iter().position(|(known, _)| known.name == keyspace.name);
        let at = match known {
            Some(at) => at,
            None => {
                let table = match self.txn()?.open_table(keyspace.rows()) {
                    Ok(table) => table,
                    Err(TableError::TableDoesNotExist(_)) => {
                        return Err(errors::no_keyspace(&keyspace.name));
                    }
                    Err(error) => return Err(FileFailure::from(error).into()),
                };
                self.tables.push((Arc::clone(keyspace), table));
                self.tables.len() - 1
            }
        };
        Ok(&self.tables[at].1)
    }

    fn exists(&mut self, keyspace: &Keyspace) -> Result<bool> {
        match self.txn()?.open_table(keyspace.rows()) {
            Ok(_) => Ok(true),
            Err(TableError::TableDoesNotExist(_)) => Ok(false),
            Err(error) => Err(FileFailure::from(error).into()),
        }
    }
}

/// Runs a part of a backup, unless its caller no longer waits. Returns `false` if the file failed.
fn answer_backup<T>(reply: Reply<T>, part: impl FnOnce() -> Result<T>) -> bool {
    if reply.is_closed() {
        return true;
    }
    let result = part();
    let healthy = !matches!(&result, Err(error) if error.kind() == ErrorKind::Unavailable);
    // A caller that no longer waits needs no answer.
    let _ = reply.send(result);
    healthy
}

fn get(table: &RowTable, keyspace: &Keyspace, key: &[u8], now: Moment) -> Result<Option<FoundRow>> {
    let name = || keyspace.row_name(key);
    let got = errors::catch_page_error(|| {
        match search::find(table, key).map_err(|error| errors::read_error(name(), error))? {
            Some(row) => {
                let row = keyspace.parse_row(key, row.value())?;
                let hides_ordered = row.hides_ordered();
                Ok(row.value_at(now).map(|value| FoundRow { value, hides_ordered }))
            }
            None => Ok(None),
        }
    });
    got.unwrap_or_else(|page_error| Err(errors::damaged_row(name(), page_error)))
}
