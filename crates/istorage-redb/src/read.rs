//! The threads that read: each takes what waits and answers it from one snapshot.
//!
//! Snapshots are short: a page of a stream is a job of its own, so that a slow consumer keeps no old pages of the file
//! alive, and no read waits for a write.

use std::{ops::Bound, sync::Arc};

use async_channel::{Receiver, Sender};
use bytes::Bytes;
use istorage::{ErrorKind, ExpiringRow, Range, Result};
use redb::{ReadOnlyTable, ReadTransaction, TableError};
use tokio::sync::oneshot;

use crate::{
    errors::{self, Failure},
    file::StorageFile,
    layout::{self, Keyspace, Stored},
    time::Moment,
    write::WriteJob,
};

/// How many jobs share a snapshot at most.
const GROUP: usize = 16;
/// A page of a stream ends with the row that reaches one of these. Rows that have expired count too.
const PAGE_ROWS: usize = 1_000;
const PAGE_BYTES: usize = 1 << 20;

type Reply<T> = oneshot::Sender<Result<T>>;
type Rows = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// Something to read, and who waits for it. `now` is the caller's one reading of the time.
#[derive(Debug)]
pub(crate) enum ReadJob {
    Rows {
        keyspace: Arc<Keyspace>,
        keys: Vec<Vec<u8>>,
        now: Moment,
        reply: Reply<Vec<Option<Bytes>>>,
    },
    Page {
        keyspace: Arc<Keyspace>,
        pkey: Bytes,
        range: Range,
        now: Moment,
        reply: Reply<Page>,
    },
    Exists {
        keyspace: Arc<Keyspace>,
        reply: Reply<bool>,
    },
}

/// A piece of a range.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) rows: Vec<ExpiringRow>,
    /// What is left of the range, if the page did not reach its end.
    pub(crate) rest: Option<Range>,
}

/// One of the threads.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) file: Arc<StorageFile>,
    pub(crate) jobs: Receiver<ReadJob>,
    pub(crate) writer: Sender<WriteJob>,
}

impl Reader {
    /// Reads until the queue is closed and empty.
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
            if failed {
                // A full queue says as much: the writer finds out by itself.
                let _ = self.writer.try_send(WriteJob::Recover);
            }
        }
    }
}

/// One state of the file, for a group of jobs.
struct Snapshot<'f> {
    file: &'f StorageFile,
    txn: Option<ReadTransaction>,
    tables: Vec<(Arc<Keyspace>, Rows)>,
}

impl Snapshot<'_> {
    /// Answers; `false` if the file failed.
    fn answer(&mut self, job: ReadJob) -> bool {
        match job {
            ReadJob::Rows { keyspace, keys, now, reply } => answer(reply, || {
                let table = self.table(&keyspace)?;
                keys.iter().map(|key| get(table, key, now)).collect()
            }),
            ReadJob::Page { keyspace, pkey, range, now, reply } => {
                answer(reply, || page(self.table(&keyspace)?, &pkey, &range, now))
            }
            ReadJob::Exists { keyspace, reply } => answer(reply, || self.exists(&keyspace)),
        }
    }

    fn txn(&mut self) -> Result<&ReadTransaction> {
        let txn = match self.txn.take() {
            Some(txn) => txn,
            None => self.file.begin_read()?,
        };
        Ok(self.txn.insert(txn))
    }

    fn table(&mut self, keyspace: &Arc<Keyspace>) -> Result<&Rows> {
        let known = self.tables.iter().position(|(known, _)| known.name == keyspace.name);
        let at = match known {
            Some(at) => at,
            None => {
                let table = match self.txn()?.open_table(keyspace.rows()) {
                    Ok(table) => table,
                    Err(TableError::TableDoesNotExist(_)) => {
                        return Err(errors::no_keyspace(&keyspace.name));
                    }
                    Err(error) => return Err(Failure::from(error).into()),
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
            Err(error) => Err(Failure::from(error).into()),
        }
    }
}

/// Runs the read unless nobody waits for it any more; `false` if the file failed.
fn answer<T>(reply: Reply<T>, read: impl FnOnce() -> Result<T>) -> bool {
    if reply.is_closed() {
        return true;
    }
    let result = read();
    let healthy = !matches!(&result, Err(error) if error.kind() == ErrorKind::Unavailable);
    // Whoever has stopped waiting needs no answer.
    let _ = reply.send(result);
    healthy
}

fn get(table: &Rows, key: &[u8], now: Moment) -> Result<Option<Bytes>> {
    match table.get(key).map_err(Failure::from)? {
        Some(row) => Ok(Stored::parse(row.value())?.value_at(now)),
        None => Ok(None),
    }
}

fn page(table: &Rows, pkey: &[u8], range: &Range, now: Moment) -> Result<Page> {
    let (start, end) = layout::row_keys(pkey, range);
    let bounds = (start.as_ref().map(Vec::as_slice), end.as_ref().map(Vec::as_slice));
    let found =
        table.range::<&[u8]>(bounds as (Bound<&[u8]>, Bound<&[u8]>)).map_err(Failure::from)?;
    let mut rows = Vec::new();
    let mut bytes = 0;
    for (seen, row) in (1..).zip(found) {
        let (key, row) = row.map_err(Failure::from)?;
        let ccols = layout::ccols(pkey, key.value());
        let stored = Stored::parse(row.value())?;
        bytes += ccols.len() + stored.value.len();
        if let Some(value) = stored.value_at(now) {
            let ttl = stored.kind.expires().map(|at| at.since(now));
            rows.push(ExpiringRow { ccols: Bytes::copy_from_slice(ccols), value, ttl });
        }
        if seen >= PAGE_ROWS || bytes >= PAGE_BYTES {
            return Ok(Page { rows, rest: Some(range.behind(ccols)) });
        }
    }
    Ok(Page { rows, rest: None })
}
