//! The rows whose stored bytes a partition knows: rows that were read ahead for commands that wait,
//! and counter records that the last groups wrote.

use std::{mem, num::NonZeroUsize};

use bytes::Bytes;
use eventlog::{AppRow, istorage::FoundRow};
use hashbrown::HashMap;
use lru::LruCache;

/// The largest number of rows in one call. The numbers of as many workspaces are read side by side.
pub(crate) const ROWS: usize = 32;

/// The number of rows in one call after many calls failed.
const FEW_ROWS: usize = 2;

/// The largest size of a row that an application stores. The real size of a row is known only after
/// the row is read.
const ROW: usize = 1 << 20;

/// The largest number of bytes that a partition keeps of rows that it read ahead, if no row has
/// more than 1 MiB.
const READ_AHEAD_BYTES: usize = ROWS * ROW;

/// The largest number of counter records that a partition keeps.
const COUNTERS: NonZeroUsize = NonZeroUsize::new(4_096).expect("it is not zero");

/// The largest counter record that a partition keeps. A usual one has about 120 bytes.
const COUNTER: usize = 512;

/// The largest number of bytes of rows that a partition keeps in memory between its groups: rows
/// that it read ahead, if no row has more than 1 MiB, and counter records.
pub const KNOWN_ROWS_BYTES: usize = READ_AHEAD_BYTES + COUNTERS.get() * (COUNTER + COUNTER_ENTRY);

/// The memory of a counter record beside its bytes: its key, and its place in the cache.
const COUNTER_ENTRY: usize = 256;

/// The rows whose stored bytes are known.
///
/// Invariant: a row here holds the bytes that the storage holds. Only the leader writes these rows,
/// so a row stays as it is until a group of this partition writes the row.
///
/// So a group drops the rows that it wrote, except counter records: it replaces their bytes if its
/// write succeeded. A simpler version keeps what was read. Group 1 reads a record ahead and changes
/// it; a command of group 2 finds the bytes from before group 1, and replaces a version that the
/// storage no longer has. So the write of group 2 meets another row than expected.
///
/// Each command that draws a number of a gapless series reads and writes the counter record of the
/// series. Without the kept records each group would wait for one more read.
///
/// Invariant: counter records are kept only where a write notices what another program did to the
/// row: see [`KnownRows::keeping_counters`].
#[derive(Debug)]
pub(crate) struct KnownRows {
    /// Each row that was read ahead; `None` for a row that does not exist.
    read_ahead: HashMap<AppRow, Option<FoundRow>>,
    /// The number of bytes in all rows that were read ahead.
    bytes: usize,
    /// The largest number of rows in the next call. A call that fails halves this number. So a call
    /// that is too large for the storage, or a row that cannot be read, does not delay every group.
    max_rows: usize,
    /// The counter records that the last groups wrote; `None` if none are kept.
    counters: Option<LruCache<AppRow, FoundRow>>,
}

impl KnownRows {
    /// Makes an empty set. `checks_records` tells whether a write of a record notices what another
    /// program did to the row. Only then are counter records kept.
    ///
    /// A simpler version keeps them always. At level 2 an operator repairs a counter record by a
    /// plain write, which hides ordered writes; the leader puts the next versions of the record
    /// that it has in memory, and they are hidden; the next leader reads the record of the
    /// operator. So numbers would be given twice. A leader that reads the record writes it
    /// conditionally.
    pub(crate) fn keeping_counters(checks_records: bool) -> KnownRows {
        let counters = checks_records.then(|| {
            // A cache with a capacity allocates all its entries at once.
            let mut counters = LruCache::unbounded();
            counters.resize(COUNTERS);
            counters
        });
        KnownRows { read_ahead: HashMap::new(), bytes: 0, max_rows: ROWS, counters }
    }

    /// A row, if it is known; the inner `None` stands for a row that does not exist.
    pub(crate) fn get(&self, row: &AppRow) -> Option<Option<FoundRow>> {
        if let Some(counter) = self.counters.as_ref().and_then(|counters| counters.peek(row)) {
            return Some(Some(counter.clone()));
        }
        if self.read_ahead.is_empty() { None } else { self.read_ahead.get(row).cloned() }
    }

    /// Keeps a counter record as a group wrote it, if counter records are kept. `hides_ordered`
    /// tells whether the group found a row that hides ordered writes: it wrote this row
    /// conditionally, and the row still hides them.
    ///
    /// Invariant: a row is kept as one that hides ordered writes only if it certainly hides them:
    /// otherwise a conditional write of the row could land above a later put. At level 0 an atomic
    /// write makes each row hide ordered writes. Such a storage writes all rows conditionally at
    /// level 0, and asks for no flag.
    pub(crate) fn keep_counter(&mut self, row: AppRow, bytes: &[u8], hides_ordered: bool) {
        self.remove_read_ahead(&row);
        let Some(counters) = &mut self.counters else { return };
        if bytes.len() <= COUNTER {
            // The bytes share the memory of their whole event, so they are copied.
            let value = Bytes::copy_from_slice(bytes);
            counters.put(row, FoundRow { value, hides_ordered });
        } else {
            counters.pop(&row);
        }
    }

    /// Drops a row that was read ahead.
    pub(crate) fn remove_read_ahead(&mut self, row: &AppRow) {
        if !self.read_ahead.is_empty() {
            let removed = self.read_ahead.remove(row).flatten();
            self.bytes -= removed.map_or(0, |found| found.value.len());
        }
    }

    /// Drops all rows.
    pub(crate) fn clear(&mut self) {
        self.read_ahead.clear();
        self.bytes = 0;
        if let Some(counters) = &mut self.counters {
            counters.clear();
        }
    }

    /// Drops all rows that were read ahead, except these. The search ends as soon as it has found
    /// all rows that are kept here.
    pub(crate) fn keep_read_ahead(&mut self, mut needed: impl Iterator<Item = AppRow>) {
        let mut all = mem::take(&mut self.read_ahead);
        self.bytes = 0;
        while !all.is_empty()
            && let Some(row) = needed.next()
        {
            if let Some(found) = all.remove(&row) {
                self.add(&[row], vec![found]);
            }
        }
    }

    /// Drops the counter records that were read ahead, if counter records are not kept.
    pub(crate) fn forget_unkept_counters(&mut self, is_counter: impl Fn(AppRow) -> bool) {
        if self.counters.is_none() {
            let read: Vec<AppRow> = self.read_ahead.keys().copied().collect();
            read.iter().filter(|row| is_counter(**row)).for_each(|row| self.remove_read_ahead(row));
        }
    }

    /// Adds rows that were read ahead.
    pub(crate) fn add(&mut self, rows: &[AppRow], found: Vec<Option<FoundRow>>) {
        self.bytes += found.iter().flatten().map(|found| found.value.len()).sum::<usize>();
        self.read_ahead.extend(rows.iter().copied().zip(found));
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

    fn found(value: &[u8]) -> FoundRow {
        FoundRow { value: Bytes::copy_from_slice(value), hides_ordered: false }
    }

    /// A call read 100 rows of any size. Where rows have a megabyte, that was 100 MiB for each
    /// partition.
    #[test]
    fn rows_that_are_read_ahead_have_a_bound_in_bytes() {
        for size in [1, 10_000, ROW - 1, ROW] {
            let row = found(&vec![0; size]);
            let (mut ahead, mut next) = (KnownRows::keeping_counters(true), 0);
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
            rows(0, next as usize).iter().for_each(|row| ahead.remove_read_ahead(row));
            assert_eq!((ahead.bytes, ahead.rows_of_a_call()), (0, ROWS));
        }
    }

    /// A counter record pinned the memory of its whole event.
    #[test]
    fn counter_records_have_a_bound_in_number_and_in_bytes() {
        let mut known = KnownRows::keeping_counters(true);
        let event = Bytes::from(vec![0; ROW]);
        for row in rows(0, COUNTERS.get() + 10) {
            known.keep_counter(row, &event.slice(..100), false);
        }
        assert!(event.try_into_mut().is_ok(), "nothing refers to the event");
        let kept: Vec<bool> =
            rows(0, COUNTERS.get() + 10).iter().map(|row| known.get(row).is_some()).collect();
        let forgotten = [false; 10].into_iter();
        assert!(kept.into_iter().eq(forgotten.chain([true; COUNTERS.get()])));
        let row = &rows(20, 1)[0];
        known.keep_counter(*row, &[1; COUNTER], false);
        assert_eq!(known.get(row), Some(Some(found(&[1; COUNTER]))));
        known.keep_counter(*row, &[2; COUNTER + 1], false);
        assert_eq!(known.get(row), None, "the bytes from before are wrong");
    }

    #[test]
    fn no_counter_record_is_kept_where_a_repaired_row_would_not_be_noticed() {
        let (mut known, row) = (KnownRows::keeping_counters(false), rows(1, 1)[0]);
        known.add(&[row], vec![Some(found(b"before"))]);
        known.keep_counter(row, b"after", false);
        assert_eq!(known.get(&row), None);
        known.add(&rows(1, 2), vec![Some(found(b"read for a later command")); 2]);
        known.forget_unkept_counters(|it| it == row);
        assert_eq!((known.get(&row), known.read_ahead.len()), (None, 1));
    }

    /// A counter record that was read ahead for a later command is older than the one that the
    /// group wrote.
    #[test]
    fn a_counter_record_replaces_the_bytes_that_were_read_ahead() {
        let (mut known, row) = (KnownRows::keeping_counters(true), rows(1, 1)[0]);
        known.add(&[row], vec![Some(found(b"before"))]);
        known.keep_counter(row, b"after", true);
        let hides = FoundRow { hides_ordered: true, ..found(b"after") };
        assert_eq!(known.get(&row), Some(Some(hides)));
        assert_eq!(known.bytes, 0);
        known.clear();
        assert_eq!(known.get(&row), None);
    }

    /// After each group the partition took hundreds of milliseconds to look up the rows of 99
    /// waiting commands of 2,000 rows each.
    #[test]
    fn the_search_for_rows_ends_when_all_are_found() {
        let mut ahead = KnownRows::keeping_counters(true);
        ahead.add(&rows(100, 10), vec![Some(found(b"row")); 10]);
        let mut looked_up = 0;
        ahead.keep_read_ahead(rows(95, 10_000).into_iter().inspect(|_| looked_up += 1));
        assert_eq!((looked_up, ahead.read_ahead.len(), ahead.bytes), (15, 10, 30));
    }

    /// After a call failed, the partition repeated a call of the same size for every group. Each
    /// group waited for the time-out of that call, and then read row by row.
    #[test]
    fn calls_that_fail_become_small_and_grow_again_when_calls_are_answered() {
        let mut ahead = KnownRows::keeping_counters(true);
        let after = |ahead: &mut KnownRows, is_answered| {
            ahead.note_call(is_answered);
            ahead.rows_of_a_call()
        };
        assert_eq!([false; 5].map(|failed| after(&mut ahead, failed)), [16, 8, 4, 2, 2]);
        assert_eq!([true; 3].map(|answered| after(&mut ahead, answered)), [3, 4, 5]);
        (0..100).for_each(|_| ahead.note_call(true));
        assert_eq!(ahead.rows_of_a_call(), ROWS);
    }
}
