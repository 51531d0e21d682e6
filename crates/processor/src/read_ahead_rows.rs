//! The rows that were read ahead for commands that wait.

use std::mem;

use bytes::Bytes;
use eventlog::AppRow;
use hashbrown::HashMap;

/// The largest number of rows in one call. The numbers of as many workspaces are read side by side.
pub(crate) const ROWS: usize = 32;

/// The number of rows in one call after many calls failed.
const FEW_ROWS: usize = 2;

/// The largest size of a row that an application stores. The real size of a row is known only after
/// the row is read.
const ROW: usize = 1 << 20;

/// The largest number of bytes that a partition keeps of rows that it read ahead, if no row has
/// more than 1 MiB.
pub const READ_AHEAD_BYTES: usize = ROWS * ROW;

/// The rows that were read ahead.
///
/// Invariant: a row here holds the bytes that the storage holds. Only the leader writes these rows,
/// so a row stays as it was read until a group of this partition writes the row.
///
/// So a group drops the rows that it wrote. A simpler version keeps them. Group 1 reads a record
/// ahead and changes it; a command of group 2 finds the bytes from before group 1, and replaces a
/// version that the storage no longer has. So the write of group 2 meets another row than expected.
#[derive(Debug)]
pub(crate) struct ReadAheadRows {
    /// The bytes of each row; `None` for a row that does not exist.
    rows: HashMap<AppRow, Option<Bytes>>,
    /// The number of bytes in all rows.
    bytes: usize,
    /// The largest number of rows in the next call. A call that fails halves this number. So a call
    /// that is too large for the storage, or a row that cannot be read, does not delay every group.
    max_rows: usize,
}

impl Default for ReadAheadRows {
    fn default() -> ReadAheadRows {
        ReadAheadRows { rows: HashMap::new(), bytes: 0, max_rows: ROWS }
    }
}

impl ReadAheadRows {
    /// The content of a row, if the row was read ahead.
    pub(crate) fn get(&self, row: &AppRow) -> Option<Option<Bytes>> {
        if self.rows.is_empty() { None } else { self.rows.get(row).cloned() }
    }

    pub(crate) fn remove(&mut self, row: &AppRow) {
        let removed = self.rows.remove(row).flatten();
        self.bytes -= removed.map_or(0, |bytes| bytes.len());
    }

    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.bytes = 0;
    }

    /// Drops all rows but these. The search ends as soon as all rows that are here were found.
    pub(crate) fn keep(&mut self, mut needed: impl Iterator<Item = AppRow>) {
        let mut all = mem::take(&mut self.rows);
        self.bytes = 0;
        while !all.is_empty()
            && let Some(row) = needed.next()
        {
            if let Some(found) = all.remove(&row) {
                self.add(&[row], vec![found]);
            }
        }
    }

    pub(crate) fn add(&mut self, rows: &[AppRow], found: Vec<Option<Bytes>>) {
        self.bytes += found.iter().flatten().map(Bytes::len).sum::<usize>();
        self.rows.extend(rows.iter().copied().zip(found));
    }

    /// The number of rows that the next call reads.
    pub(crate) fn rows_of_a_call(&self) -> usize {
        self.max_rows.min(READ_AHEAD_BYTES.saturating_sub(self.bytes) / ROW)
    }

    pub(crate) fn note_call(&mut self, is_answered: bool) {
        self.max_rows = match is_answered {
            true => (self.max_rows + 1).min(ROWS),
            false => (self.max_rows / 2).max(FEW_ROWS),
        };
    }
}

#[cfg(test)]
mod tests {
    use eventlog::{RecordId, WsId};

    use super::*;

    fn rows(from: u64, count: usize) -> Vec<AppRow> {
        (from..).take(count).map(|id| AppRow::Record(WsId(1), RecordId(id))).collect()
    }

    /// A call read 100 rows of any size. Where rows have a megabyte, that was 100 MiB for each
    /// partition.
    #[test]
    fn rows_that_are_read_ahead_have_a_bound_in_bytes() {
        for size in [1, 10_000, ROW - 1, ROW] {
            let row = Bytes::from(vec![0; size]);
            let (mut ahead, mut next) = (ReadAheadRows::default(), 0);
            for _ in 0..100 {
                let rows = rows(next, ahead.rows_of_a_call());
                next += rows.len() as u64;
                ahead.add(&rows, vec![Some(row.clone()); rows.len()]);
                assert!(
                    ahead.bytes <= READ_AHEAD_BYTES,
                    "{} bytes of rows with {size}",
                    ahead.bytes
                );
            }
            rows(0, next as usize).iter().for_each(|row| ahead.remove(row));
            assert_eq!((ahead.bytes, ahead.rows_of_a_call()), (0, ROWS));
        }
    }

    /// After each group the partition needed hundreds of milliseconds to look up the rows of 99
    /// waiting commands of 2,000 rows each.
    #[test]
    fn the_search_for_rows_ends_when_all_are_found() {
        let mut ahead = ReadAheadRows::default();
        ahead.add(&rows(100, 10), vec![Some(Bytes::from_static(b"row")); 10]);
        let mut looked_up = 0;
        ahead.keep(rows(95, 10_000).into_iter().inspect(|_| looked_up += 1));
        assert_eq!((looked_up, ahead.rows.len(), ahead.bytes), (15, 10, 30));
    }

    /// After a call failed, the partition repeated a call of the same size for every group. Each
    /// group waited for the time-out of that call, and then read row by row.
    #[test]
    fn calls_that_fail_become_small_and_grow_again_when_calls_are_answered() {
        let mut ahead = ReadAheadRows::default();
        let after = |ahead: &mut ReadAheadRows, is_answered| {
            ahead.note_call(is_answered);
            ahead.rows_of_a_call()
        };
        assert_eq!([false; 5].map(|failed| after(&mut ahead, failed)), [16, 8, 4, 2, 2]);
        assert_eq!([true; 3].map(|answered| after(&mut ahead, answered)), [3, 4, 5]);
        (0..100).for_each(|_| ahead.note_call(true));
        assert_eq!(ahead.rows_of_a_call(), ROWS);
    }
}
