//! Rows in memory: those that the log has, and that the storage file may lack.

use std::{collections::BTreeMap, ops::Bound};

use bytes::Bytes;
use istorage::KeyspaceName;

/// The row of a key: its [bytes](crate::layout::FileRow), or `None` if the row was removed.
pub(crate) type MemRow = Option<Bytes>;

/// The approximate number of bytes that a row takes in memory besides its key and its own bytes.
pub(crate) const ROW_OVERHEAD: usize = 128;
/// The least weight of a row.
const LEAST: usize = 256;

/// The last state of each row that was written since some moment, sorted by key.
#[derive(Debug, Default)]
pub(crate) struct MemTable {
    keyspaces: BTreeMap<KeyspaceName, BTreeMap<Bytes, MemRow>>,
    weight: usize,
}

impl MemTable {
    /// Writes a row.
    pub(crate) fn set(&mut self, keyspace: &KeyspaceName, key: Bytes, row: MemRow) {
        let rows = match self.keyspaces.get_mut(keyspace) {
            Some(rows) => rows,
            None => self.keyspaces.entry(keyspace.clone()).or_default(),
        };
        self.weight = insert(rows, self.weight, key, row);
    }

    /// Writes all rows of another table.
    pub(crate) fn absorb(&mut self, later: MemTable) {
        if self.is_empty() {
            *self = later;
            return;
        }
        for (keyspace, later) in later.keyspaces {
            let rows = self.keyspaces.entry(keyspace).or_default();
            for (key, row) in later {
                self.weight = insert(rows, self.weight, key, row);
            }
        }
    }

    /// The state of a row; `None` if the table knows nothing of it.
    pub(crate) fn get(&self, keyspace: &KeyspaceName, key: &[u8]) -> Option<&MemRow> {
        self.keyspaces.get(keyspace)?.get(key)
    }

    /// The rows of a keyspace from `from` to `end`.
    pub(crate) fn range<'t>(
        &'t self,
        keyspace: &KeyspaceName,
        from: &[u8],
        end: Bound<&[u8]>,
    ) -> impl Iterator<Item = (&'t Bytes, &'t MemRow)> + use<'t> {
        // A range with its end before its start would panic.
        let is_empty = matches!(end, Bound::Excluded(end) | Bound::Included(end) if end < from);
        let rows = self.keyspaces.get(keyspace).filter(|_| !is_empty);
        rows.map(|rows| rows.range::<[u8], _>((Bound::Included(from), end))).into_iter().flatten()
    }

    /// The rows of each keyspace.
    pub(crate) fn keyspaces(
        &self,
    ) -> impl Iterator<Item = (&KeyspaceName, &BTreeMap<Bytes, MemRow>)> {
        self.keyspaces.iter()
    }

    /// The approximate number of bytes of memory.
    pub(crate) fn weight(&self) -> usize {
        self.weight
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keyspaces.is_empty()
    }

    /// The number of rows.
    pub(crate) fn len(&self) -> usize {
        self.keyspaces.values().map(BTreeMap::len).sum()
    }
}

/// Writes a row, and returns the weight of the table afterwards.
fn insert(rows: &mut BTreeMap<Bytes, MemRow>, before: usize, key: Bytes, row: MemRow) -> usize {
    let (key_len, added) = (key.len(), weight(key.len(), &row));
    let replaced = rows.insert(key, row);
    before + added - replaced.map_or(0, |row| weight(key_len, &row))
}

fn weight(key: usize, row: &MemRow) -> usize {
    (key + row.as_ref().map_or(0, Bytes::len) + ROW_OVERHEAD).max(LEAST)
}
