//! The rows that the storage file may lack, as readers and the writer share them.
//!
//! The *active* table has the rows of the present segment of the log. The *frozen* table has those
//! of the segment before, while the filer writes them into the storage file. A snapshot of the
//! file has all rows of the segments before some segment, and no others. So the tables and a
//! snapshot together have all rows of one moment if the snapshot begins where the tables begin, or
//! later, but not behind the active table: [`Held::fits`].
//!
//! A view begins a snapshot, and then looks into the tables. If a table was filed and unlinked in
//! between, its rows are in neither, so the snapshot does not fit. In the other order the second
//! condition would matter: both tables are filed after the look and before the snapshot begins,
//! and a read shows half of a write.

#[cfg(test)]
mod tests;

use std::{
    ops::Bound,
    sync::{Arc, RwLock, RwLockReadGuard},
};

use base::locks::{read, write};
use bytes::Bytes;
use istorage::KeyspaceName;

use crate::mem_table::{MemRow, MemTable};

/// The tables of an open file.
pub(crate) struct Tables {
    held: RwLock<Held>,
}

/// The tables, while nothing is written to them.
#[derive(Debug, Default)]
pub(crate) struct Held {
    frozen: Option<Arc<MemTable>>,
    active: MemTable,
    /// The segment of the active table.
    segment: u64,
}

impl Tables {
    /// Tables of a file that has all rows of the segments before this one.
    pub(crate) fn new(segment: u64) -> Tables {
        Tables { held: RwLock::new(Held { segment, ..Held::default() }) }
    }

    /// Looks at the tables. No call of the disk is made meanwhile.
    pub(crate) fn hold(&self) -> RwLockReadGuard<'_, Held> {
        read(&self.held)
    }

    /// Shows rows that are in the log.
    pub(crate) fn publish(&self, rows: MemTable) {
        write(&self.held).active.absorb(rows);
    }

    /// Begins another segment, and returns the table of the segment before.
    pub(crate) fn freeze(&self) -> Arc<MemTable> {
        let mut held = write(&self.held);
        let frozen = Arc::new(std::mem::take(&mut held.active));
        held.segment += 1;
        held.frozen = Some(Arc::clone(&frozen));
        frozen
    }

    /// Forgets the frozen table: the storage file has its rows.
    pub(crate) fn unlink(&self) -> Option<Arc<MemTable>> {
        write(&self.held).frozen.take()
    }
}

impl Held {
    /// The state of a row; `None` if only the storage file knows the row.
    pub(crate) fn get(&self, keyspace: &KeyspaceName, key: &[u8]) -> Option<&MemRow> {
        let frozen = || self.frozen.as_ref()?.get(keyspace, key);
        self.active.get(keyspace, key).or_else(frozen)
    }

    /// Whether the tables and a snapshot of the file together have all rows of one moment. The
    /// snapshot has all rows of the segments before `snapshot`.
    pub(crate) fn fits(&self, snapshot: u64) -> bool {
        let first = self.segment - u64::from(self.frozen.is_some());
        (first..=self.segment).contains(&snapshot)
    }

    /// The weight of the active table.
    pub(crate) fn weight(&self) -> usize {
        self.active.weight()
    }

    /// The rows from `from` to `end`, up to the row that reaches a number of rows or of bytes.
    pub(crate) fn page(
        &self,
        keyspace: &KeyspaceName,
        from: &[u8],
        end: Bound<&[u8]>,
        (most_rows, most_bytes): (usize, usize),
    ) -> Vec<(Bytes, MemRow)> {
        let (mut page, mut bytes) = (Vec::new(), 0);
        for (key, row) in self.range(keyspace, from, end) {
            if page.len() >= most_rows || bytes >= most_bytes {
                break;
            }
            bytes += key.len() + row.as_ref().map_or(0, Bytes::len);
            page.push((key.clone(), row.clone()));
        }
        page
    }

    /// The key of the first row from `from` on, even if it was removed.
    pub(crate) fn first_from(&self, keyspace: &KeyspaceName, from: &[u8]) -> Option<Bytes> {
        self.range(keyspace, from, Bound::Unbounded).next().map(|(key, _)| key.clone())
    }

    /// The rows of both tables in the order of their keys.
    fn range(
        &self,
        keyspace: &KeyspaceName,
        from: &[u8],
        end: Bound<&[u8]>,
    ) -> impl Iterator<Item = (&Bytes, &MemRow)> {
        let mut active = self.active.range(keyspace, from, end).peekable();
        let frozen = self.frozen.as_ref().map(|frozen| frozen.range(keyspace, from, end));
        let mut frozen = frozen.into_iter().flatten().peekable();
        std::iter::from_fn(move || match (active.peek(), frozen.peek()) {
            (Some((one, _)), Some((other, _))) if one < other => active.next(),
            (Some((one, _)), Some((other, _))) if one == other => {
                frozen.next();
                active.next()
            }
            (Some(_), None) => active.next(),
            (_, _) => frozen.next(),
        })
    }
}
