//! The threads that read: each takes what waits and answers it from one snapshot.
//!
//! Snapshots are short: a page of a stream is a job of its own, so that a slow consumer keeps no old pages of the file
//! alive, and no read waits for a write.
//!
//! Invariant: a damaged row or page fails the reads of what is on it, and nothing else.

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
    errors::{self, Failure},
    file::StorageFile,
    layout::{self, Keyspace},
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

    /// Runs the read unless nobody waits for it any more; `false` if the file failed.
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
            errors::caught(|| read(snapshot))
                .unwrap_or_else(|unwound| Err(errors::damaged_row(keyspace.as_table(), unwound)))
        };
        let is_unavailable = |result: &Result<T>| matches!(result, Err(error) if error.kind() == ErrorKind::Unavailable);
        let mut result = run(self);
        if is_unavailable(&result) {
            // The writer may have opened the file again, for a reason that is none of this read's.
            (self.txn, self.tables) = (None, Vec::new());
            result = run(self);
        }
        let healthy = !is_unavailable(&result);
        // Whoever has stopped waiting needs no answer.
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

fn get(table: &Rows, keyspace: &Keyspace, key: &[u8], now: Moment) -> Result<Option<Bytes>> {
    let name = || keyspace.name_of(key);
    let got = errors::caught(|| {
        match table.get(key).map_err(|error| errors::reading(name(), error))? {
            Some(row) => Ok(keyspace.row(key, row.value())?.value_at(now)),
            None => Ok(None),
        }
    });
    got.unwrap_or_else(|unwound| Err(errors::damaged_row(name(), unwound)))
}

/// Reads a page. Rows in front of a damaged one are a page; the next page begins with the damaged one and fails.
fn page(
    table: &Rows,
    keyspace: &Keyspace,
    pkey: &[u8],
    range: &Range,
    now: Moment,
) -> Result<Page> {
    let mut part = Part::default();
    let why = match errors::caught(|| read_rows(table, keyspace, pkey, range, now, &mut part)) {
        Ok(Ok(rest)) => return Ok(Page { rows: part.rows, rest }),
        Ok(Err(error)) => error,
        Err(unwound) => {
            let from = layout::row_key(pkey, &range.start);
            errors::damaged_row(format!("what follows {}", keyspace.name_of(&from)), unwound)
        }
    };
    match part.last {
        Some(last) => Ok(Page { rows: part.rows, rest: Some(range.behind(&last)) }),
        None => Err(why),
    }
}

/// What was read of a page.
#[derive(Default)]
struct Part {
    rows: Vec<ExpiringRow>,
    /// The last row that was looked at. It may have expired.
    last: Option<Bytes>,
}

/// Reads rows until the page is full; returns what is left of the range.
fn read_rows(
    table: &Rows,
    keyspace: &Keyspace,
    pkey: &[u8],
    range: &Range,
    now: Moment,
    part: &mut Part,
) -> Result<Option<Range>> {
    let (start, end) = layout::row_keys(pkey, range);
    let bounds: (Bound<&[u8]>, Bound<&[u8]>) =
        (start.as_ref().map(Vec::as_slice), end.as_ref().map(Vec::as_slice));
    let from = layout::row_key(pkey, &range.start);
    let place = || format!("what follows {}", keyspace.name_of(&from));
    let failed = |error| errors::reading(place(), error);
    let mut bytes = 0;
    for (seen, row) in (1..).zip(table.range::<&[u8]>(bounds).map_err(failed)?) {
        let (key, row) = row.map_err(failed)?;
        let key = key.value();
        let stored = keyspace.row(key, row.value())?;
        let ccols = Bytes::copy_from_slice(layout::ccols(pkey, key));
        // A page in the place of another has whole rows.
        let is_next = part.last.as_ref().is_none_or(|last| *last < ccols);
        if !(is_next && RangeBounds::<[u8]>::contains(&bounds, key)) {
            return Err(errors::damaged_row(place(), "rows of another place are there"));
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
