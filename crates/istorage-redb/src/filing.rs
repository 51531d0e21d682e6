//! Writes the rows of a table into the storage file, and removes expired rows from it.
//!
//! Invariant: each row in the file that can expire has an entry in the index of its keyspace, with
//! its moment of expiry, unless the index is damaged. The row that is replaced tells which entry to
//! remove, so the index is kept here only.

use std::{cell::Cell, collections::btree_map, iter::Peekable, ops::Bound, time::Duration};

use bytes::Bytes;
use redb::{CursorError, ReadTransaction, ReadableTable, Table, TableHandle, WriteTransaction};

use crate::{
    errors::FileFailure,
    layout::{
        self, FORMAT, FileRow, Keyspace, KeyspaceChange, META, META_FORMAT, META_LOG, META_TIME,
    },
    log::LogState,
    mem_table::{MemRow, MemTable},
    search,
    time::Moment,
};

/// Whether a transaction is at work on the index of the rows that expire, or removes such rows. If
/// redb then meets a damaged page, the index is given up: a filing must not fail because of rows
/// that it does not write.
#[derive(Default)]
pub(crate) struct AtIndex(Cell<bool>);

impl AtIndex {
    pub(crate) fn work<T>(
        &self,
        work: impl FnOnce() -> Result<T, FileFailure>,
    ) -> Result<T, FileFailure> {
        self.0.set(true);
        let done = work()?;
        self.0.set(false);
        Ok(done)
    }

    /// Whether such work began and did not succeed.
    pub(crate) fn has_failed(&self) -> bool {
        self.0.get()
    }
}

/// A durable transaction on the storage file.
pub(crate) struct FilingTransaction<'t> {
    pub(crate) txn: &'t WriteTransaction,
    /// `None` if the indexes of the rows that expire are not kept up.
    pub(crate) index: Option<&'t AtIndex>,
}

/// How many rows must follow a new row in its partition, so that a search for their place is worth
/// its cost.
const RUN: usize = 4;

type ExpiryTable<'t> = Table<'t, &'static [u8], ()>;

/// The keyspaces of a snapshot with rows that have expired.
pub(crate) fn due(snapshot: &ReadTransaction, now: Moment) -> Result<Vec<Keyspace>, FileFailure> {
    let mut due = Vec::new();
    for table in snapshot.list_tables()? {
        let Some(Ok(keyspace)) = Keyspace::of_table(table.name()) else { continue };
        let index = snapshot.open_table(keyspace.expiry())?;
        let Some((first, _)) = index.first()? else { continue };
        let (at, _) = layout::parse_expiry_key(first.value()).map_err(FileFailure::damaged)?;
        if at <= now {
            due.push(keyspace);
        }
    }
    Ok(due)
}

impl<'t> FilingTransaction<'t> {
    /// Writes all rows of a table. Its keyspaces must exist: redb would make a missing one.
    pub(crate) fn write(&self, rows: &MemTable) -> Result<(), FileFailure> {
        for (name, rows) in rows.keyspaces() {
            let keyspace = Keyspace::new(name.clone());
            let mut table = self.txn.open_table(keyspace.rows())?;
            let mut index = IndexOfFiling { filing: self, keyspace: &keyspace, table: None };
            let mut rows = rows.iter().peekable();
            while let Some((key, row)) = rows.next() {
                let old = match row {
                    Some(row) => table.insert(&key[..], &row[..])?,
                    None => table.remove(&key[..])?,
                };
                let is_new = old.is_none() && row.is_some();
                let old = old.and_then(|old| expiry_of(key, old.value()));
                index.change(key, old, row)?;
                if is_new && has_run(key, &rows) && search::is_in_place(&table, key)? {
                    write_run(&mut table, key, &mut rows, &mut index)?;
                }
            }
        }
        Ok(())
    }

    /// Removes at most `limit` entries of expired rows, with their rows. Returns the number of
    /// removed entries.
    pub(crate) fn purge(
        &self,
        keyspace: &Keyspace,
        now: Moment,
        limit: usize,
    ) -> Result<usize, FileFailure> {
        let Some(at_index) = self.index else { return Ok(0) };
        at_index.work(|| {
            let mut index = self.txn.open_table(keyspace.expiry())?;
            let due: Vec<Vec<u8>> = {
                let end = layout::expiry_key(now.after(Duration::from_nanos(1)), &[]);
                let entries = index.range::<&[u8]>(..&end[..])?.take(limit);
                let keys = entries.map(|entry| entry.map(|(key, _)| key.value().to_vec()));
                keys.collect::<Result<_, _>>()?
            };
            let mut rows = self.txn.open_table(keyspace.rows())?;
            for entry in &due {
                // A damaged row stays, so that a reader of the row gets the error.
                if let Ok((at, key)) = layout::parse_expiry_key(entry)
                    && rows.get(key)?.is_some_and(|row| expiry_of(key, row.value()) == Some(at))
                {
                    rows.remove(key)?;
                }
                index.remove(&entry[..])?;
            }
            Ok(due.len())
        })
    }

    /// Makes or drops a keyspace.
    pub(crate) fn change(&self, change: &KeyspaceChange) -> Result<(), FileFailure> {
        match change {
            KeyspaceChange::Make(keyspace) => {
                self.txn.open_table(keyspace.rows())?;
                self.txn.open_table(keyspace.expiry())?;
            }
            KeyspaceChange::Drop(keyspace) => {
                self.txn.delete_table(keyspace.rows())?;
                self.txn.delete_table(keyspace.expiry())?;
            }
        }
        Ok(())
    }
}

/// The rows of a table that are still to be filed.
type RowsLeft<'r> = Peekable<btree_map::Iter<'r, Bytes, MemRow>>;

/// Whether enough rows of its partition follow a new row.
fn has_run(key: &[u8], rows: &RowsLeft<'_>) -> bool {
    let last = rows.clone().nth(RUN - 1);
    last.is_some_and(|(last, _)| layout::pkey(last) == layout::pkey(key))
}

/// Writes the rows that follow the row with this key, up to the next row of the file. Rows of a log
/// are new, and follow each other: one search finds the place of all.
fn write_run(
    table: &mut Table<'_, &'static [u8], &'static [u8]>,
    key: &[u8],
    rows: &mut RowsLeft<'_>,
    index: &mut IndexOfFiling<'_, '_>,
) -> Result<(), FileFailure> {
    let mut gap = table.upper_bound_mut(Bound::Included(key))?;
    while let Some((key, row @ Some(bytes))) = rows.peek() {
        match gap.insert_before(&key[..], &bytes[..]) {
            Ok(()) => index.change(key, None, row)?,
            Err(CursorError::UnorderedKey) => break,
            Err(error) => return Err(error.into()),
        }
        rows.next();
    }
    Ok(gap.close()?)
}

/// The index of the rows that expire, while rows are filed.
struct IndexOfFiling<'f, 't> {
    filing: &'f FilingTransaction<'t>,
    keyspace: &'f Keyspace,
    /// Opened when it is needed, so rows without an expiry do not pay for it.
    table: Option<ExpiryTable<'t>>,
}

impl IndexOfFiling<'_, '_> {
    /// Notes that a row has changed. `old` is the expiry of the row before.
    fn change(
        &mut self,
        key: &Bytes,
        old: Option<Moment>,
        row: &MemRow,
    ) -> Result<(), FileFailure> {
        let new = row.as_ref().and_then(|row| expiry_of(key, row));
        let Some(at_index) = self.filing.index.filter(|_| old != new) else { return Ok(()) };
        at_index.work(|| {
            let index = match &mut self.table {
                Some(index) => index,
                closed => closed.insert(self.filing.txn.open_table(self.keyspace.expiry())?),
            };
            if let Some(at) = old {
                index.remove(&layout::expiry_key(at, key)[..])?;
            }
            if let Some(at) = new {
                index.insert(&layout::expiry_key(at, key)[..], ())?;
            }
            Ok(())
        })
    }
}

fn expiry_of(key: &[u8], row: &[u8]) -> Option<Moment> {
    FileRow::parse(key, row).ok()?.kind.expires()
}

/// Commits a transaction so that it is on the disk, and so that redb opens the file at once after a
/// crash. The file then has all rows up to a place of the log. After an error it may have them, or
/// not.
///
/// Quick repair makes the file open at once: without it, redb would first read the file from one
/// end to the other. It costs a second sync for each commit, and a map of the free pages: 64 KiB
/// for each GiB of the file. A single commit without it would break the promise, so every commit
/// has it.
pub(crate) fn commit(
    mut txn: WriteTransaction,
    state: LogState,
    time: Moment,
) -> Result<(), FileFailure> {
    {
        let mut meta = txn.open_table(META)?;
        // An earlier version of this driver does not know the tables in memory, and must refuse the
        // file.
        meta.insert(META_FORMAT, &FORMAT.to_be_bytes()[..])?;
        meta.insert(META_LOG, &state.encode()[..])?;
        meta.insert(META_TIME, &layout::encode_time(time)[..])?;
    }
    txn.set_quick_repair(true);
    Ok(txn.commit()?)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, sync::Arc};

    use bytes::Bytes;
    use istorage::KeyspaceName;
    use redb::{Builder, Database, ReadableDatabase, backends::InMemoryBackend};

    use super::*;
    use crate::layout::FileRowKind;

    fn keyspace() -> Keyspace {
        Keyspace::new(KeyspaceName::new("tests").unwrap())
    }

    /// A file with one keyspace.
    fn database() -> Database {
        let database = Builder::new().create_with_backend(InMemoryBackend::new()).unwrap();
        let made = KeyspaceChange::Make(Arc::new(keyspace()));
        change(&database, true, |rows| rows.change(&made).unwrap());
        database
    }

    fn change<T>(
        database: &Database,
        keeps_index: bool,
        change: impl FnOnce(&FilingTransaction<'_>) -> T,
    ) -> T {
        let txn = database.begin_write().unwrap();
        let at_index = AtIndex::default();
        let index = keeps_index.then_some(&at_index);
        let filing = FilingTransaction { txn: &txn, index };
        let changed = change(&filing);
        assert!(!at_index.has_failed(), "it left the index");
        txn.commit().unwrap();
        changed
    }

    /// A row that expires at a moment, or never.
    fn row(key: &str, expires: Option<u64>, value: &str) -> (Bytes, Option<Bytes>) {
        let (expires, mut bytes) = (expires.map(Moment), Vec::new());
        let kind = FileRowKind::Conditional { expires };
        FileRow { kind, value: value.as_bytes() }.write(key.as_bytes(), &mut bytes);
        (Bytes::copy_from_slice(key.as_bytes()), Some(bytes.into()))
    }

    fn table(rows: impl IntoIterator<Item = (Bytes, Option<Bytes>)>) -> MemTable {
        let mut table = MemTable::default();
        for (key, row) in rows {
            table.set(&keyspace().name, key, row);
        }
        table
    }

    /// The moments of expiry by the rows of a file, and by its index.
    fn expiries(database: &Database) -> [BTreeSet<(u64, Vec<u8>)>; 2] {
        let txn = database.begin_read().unwrap();
        let rows = txn.open_table(keyspace().rows()).unwrap();
        let by_rows = rows.iter().unwrap().filter_map(|row| {
            let (key, row) = row.unwrap();
            let at = expiry_of(key.value(), row.value())?;
            Some((at.0, key.value().to_vec()))
        });
        let index = txn.open_table(keyspace().expiry()).unwrap();
        let by_index = index.iter().unwrap().map(|entry| {
            let entry = entry.unwrap().0.value().to_vec();
            let (at, key) = layout::parse_expiry_key(&entry).unwrap();
            (at.0, key.to_vec())
        });
        [by_rows.collect(), by_index.collect()]
    }

    #[test]
    fn the_index_follows_each_change_of_a_row() {
        let database = database();
        let names = ["a", "b", "c"];
        let states = [None, Some(None), Some(Some(5)), Some(Some(7))];
        // From each state of a row to each other one.
        for before in states {
            for after in states {
                let written = |state: Option<Option<u64>>, value: &str| {
                    table(names.map(|name| match state {
                        Some(expires) => row(name, expires, value),
                        None => (Bytes::from(name), None),
                    }))
                };
                for (state, value) in [(before, "before"), (after, "after")] {
                    let rows = written(state, value);
                    change(&database, true, |filing| filing.write(&rows).unwrap());
                    let [by_rows, by_index] = expiries(&database);
                    assert_eq!(by_rows, by_index, "{before:?} to {after:?}");
                    assert_eq!(by_rows.len(), if state.flatten().is_some() { 3 } else { 0 });
                }
            }
        }
    }

    /// A row was renewed while its former entry was due.
    #[test]
    fn only_rows_that_have_expired_are_removed() {
        let database = database();
        let rows = [row("due", Some(5), "1"), row("later", Some(6), "1"), row("never", None, "1")];
        change(&database, true, |filing| filing.write(&table(rows)).unwrap());
        let purged = |now, limit| {
            change(&database, true, |filing| filing.purge(&keyspace(), Moment(now), limit).unwrap())
        };
        let is_due = |now| {
            let due = due(&database.begin_read().unwrap(), Moment(now)).unwrap();
            !due.is_empty()
        };
        assert_eq!((purged(4, 9), is_due(4)), (0, false));
        assert_eq!((purged(5, 0), is_due(5)), (0, true), "no more than the limit");
        assert_eq!((purged(5, 9), is_due(5), is_due(6)), (1, false, true));
        let renewed = table([row("later", Some(9), "2")]);
        change(&database, true, |filing| filing.write(&renewed).unwrap());
        assert_eq!((purged(8, 9), is_due(8)), (0, false));
        assert_eq!((purged(9, 9), is_due(9)), (1, false));
        let left = database.begin_read().unwrap().open_table(keyspace().rows()).unwrap();
        assert!(left.get(&b"never"[..]).unwrap().is_some());
        assert!(left.get(&b"due"[..]).unwrap().is_none());
    }

    /// The index of a file is damaged: rows that expire are written without it.
    #[test]
    fn rows_are_written_without_the_index() {
        let database = database();
        let rows = table([row("a", Some(5), "1")]);
        change(&database, false, |filing| filing.write(&rows).unwrap());
        let [by_rows, by_index] = expiries(&database);
        assert_eq!((by_rows.len(), by_index.len()), (1, 0));
    }
}
