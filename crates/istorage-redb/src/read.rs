//! The threads that read: each thread takes the waiting jobs and answers them from one snapshot.
//!
//! Snapshots are short. Each page of a stream is a job of its own, so a slow consumer keeps no old
//! pages of the file alive. No read waits for a write.
//!
//! Invariant: a damaged row or page fails only the reads that need that row or page.

use std::{
    ops::{Bound, RangeBounds},
    sync::Arc,
};

use async_channel::{Receiver, Sender};
use bytes::Bytes;
use istorage::{ErrorKind, ExpiringRow, Range, Result};
use redb::{ReadOnlyTable, ReadTransaction, TableError};
use tokio::sync::oneshot;

use crate::{
    errors::{self, FileFailure},
    file::StorageFile,
    layout::{self, Keyspace},
    time::Moment,
    write::WriteJob,
};

/// The largest number of jobs that share a snapshot.
const GROUP: usize = 16;
/// Limits of a page of a stream: a page ends with the row that reaches one of them. Expired rows
/// count too.
const PAGE_ROWS: usize = 1_000;
const PAGE_BYTES: usize = 1 << 20;

type Reply<T> = oneshot::Sender<Result<T>>;
type RowTable = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// A job for a reader, with the channel for its answer. `now` is the time that judges the expiry of
/// the rows. The caller reads the time once for all keys of a call, and once for each page.
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

/// A part of the rows of a range.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) rows: Vec<ExpiringRow>,
    /// The rest of the range, if the page did not reach its end.
    pub(crate) rest: Option<Range>,
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
            if failed {
                // If the queue is full, the writer has writes to do, and finds the failure by
                // itself.
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
                    page(snapshot.table(&keyspace)?, &keyspace, &pkey, &range, now)
                })
            }
            ReadJob::Exists { keyspace, reply } => {
                self.answer_with(reply, &keyspace, |snapshot| snapshot.exists(&keyspace))
            }
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

fn get(table: &RowTable, keyspace: &Keyspace, key: &[u8], now: Moment) -> Result<Option<Bytes>> {
    let name = || keyspace.row_name(key);
    let got = errors::catch_page_error(|| {
        match table.get(key).map_err(|error| errors::read_error(name(), error))? {
            Some(row) => Ok(keyspace.parse_row(key, row.value())?.value_at(now)),
            None => Ok(None),
        }
    });
    got.unwrap_or_else(|page_error| Err(errors::damaged_row(name(), page_error)))
}

/// Reads a page. If a row is damaged, the rows in front of it are the page. The next page begins
/// with the damaged row and fails.
fn page(
    table: &RowTable,
    keyspace: &Keyspace,
    pkey: &[u8],
    range: &Range,
    now: Moment,
) -> Result<Page> {
    let mut part = PartialPage::default();
    let why = match errors::catch_page_error(|| {
        read_rows(table, keyspace, pkey, range, now, &mut part)
    }) {
        Ok(Ok(rest)) => return Ok(Page { rows: part.rows, rest }),
        Ok(Err(error)) => error,
        Err(page_error) => {
            let from = layout::row_key(pkey, &range.start);
            errors::damaged_row(
                format!("the range from {} on", keyspace.row_name(&from)),
                page_error,
            )
        }
    };
    match part.last {
        Some(last) => Ok(Page { rows: part.rows, rest: Some(range.behind(&last)) }),
        None => Err(why),
    }
}

/// The part of a page that was read before an error.
#[derive(Default)]
struct PartialPage {
    rows: Vec<ExpiringRow>,
    /// The clustering columns of the last row that was read, even if that row has expired.
    last: Option<Bytes>,
}

/// Reads rows until the page is full. Returns the rest of the range.
fn read_rows(
    table: &RowTable,
    keyspace: &Keyspace,
    pkey: &[u8],
    range: &Range,
    now: Moment,
    part: &mut PartialPage,
) -> Result<Option<Range>> {
    let (start, end) = layout::row_keys(pkey, range);
    let bounds: (Bound<&[u8]>, Bound<&[u8]>) =
        (start.as_ref().map(Vec::as_slice), end.as_ref().map(Vec::as_slice));
    let from = layout::row_key(pkey, &range.start);
    let place = || format!("the range from {} on", keyspace.row_name(&from));
    let failed = |error| errors::read_error(place(), error);
    let mut bytes = 0;
    for (seen, row) in (1..).zip(table.range::<&[u8]>(bounds).map_err(failed)?) {
        let (key, row) = row.map_err(failed)?;
        let key = key.value();
        let stored = keyspace.parse_row(key, row.value())?;
        let ccols = Bytes::copy_from_slice(layout::ccols(pkey, key));
        // A page that lies in the place of another page has whole rows with right checksums. Only
        // their keys show the damage.
        let is_next = part.last.as_ref().is_none_or(|last| *last < ccols);
        if !(is_next && RangeBounds::<[u8]>::contains(&bounds, key)) {
            return Err(errors::damaged_row(place(), "a page holds rows of another range"));
        }
        bytes += ccols.len() + stored.value.len();
        if let Some(value) = stored.value_at(now) {
            let ttl = stored.kind.expires().map(|at| at.since(now));
            part.rows.push(ExpiringRow { ccols: ccols.clone(), value, ttl });
        }
        if seen >= PAGE_ROWS || bytes >= PAGE_BYTES {
            return Ok(Some(range.behind(&ccols)));
        }
        part.last = Some(ccols);
    }
    Ok(None)
}
