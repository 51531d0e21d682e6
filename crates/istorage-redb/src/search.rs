//! The search for a row by its key, which notices damaged keys.
//!
//! redb finds a row by comparing keys, and verifies no checksum when it reads. So a flipped bit of
//! a key makes its row vanish, and can lead the search for another row astray. A row that vanishes
//! without a word is worse than one that cannot be read: a counter would begin again, and a command
//! would be done twice.
//!
//! A search that finds nothing ends in the gap between two rows. If a wrong key has led it there,
//! then this key is beside the gap, or the two keys beside the gap are not in order with the key of
//! the search. So one look at the two rows tells whether the answer is true.

use std::{collections::BTreeMap, ops::Bound};

use redb::{AccessGuard, Cursor, ReadableTable, StorageError};

use crate::layout;

type Guard<'t> = AccessGuard<'t, &'static [u8]>;

/// Rows, from the gap before the first of them.
pub(crate) type RowCursor<'t> = Cursor<'t, &'static [u8], &'static [u8]>;

/// The most bytes of keys that are kept of gaps.
const MOST_GAP_BYTES: usize = 4 << 20;

/// Parts of a table in which a search has shown that there are no rows. Most rows that are written
/// are new, and come after the rows of their kind, so few searches have to be made.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    /// The end of each part by its beginning. The end is the key of a row; `None` is the end of the
    /// table.
    by_start: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    bytes: usize,
}

impl Gaps {
    /// Whether a key is in one of the gaps.
    pub(crate) fn have(&self, key: &[u8]) -> bool {
        let mut before = self.by_start.range::<[u8], _>((Bound::Unbounded, Bound::Included(key)));
        let end = before.next_back().map(|(_, end)| end);
        end.is_some_and(|end| end.as_ref().is_none_or(|end| key < &end[..]))
    }

    /// Notes the gap from `key` on, in which a search for `key` has ended.
    ///
    /// A wrong key of a row may be so high that rows of other pages come before it. The search for
    /// such a key ends at another place, and then the gap is not noted. So what a damaged page
    /// hides does not become more.
    fn note(
        &mut self,
        table: &impl ReadableTable<&'static [u8], &'static [u8]>,
        key: &[u8],
        mut gap: RowCursor<'_>,
    ) -> Result<(), StorageError> {
        let end = gap.peek_next()?.map(|(end, _)| end.value().to_vec());
        if let Some(end) = &end {
            let mut at_end = table.lower_bound(Bound::Included(&end[..]))?;
            let key_of = |row: Option<(Guard<'_>, _)>| row.map(|(key, _)| key.value().to_vec());
            if key_of(at_end.peek_prev()?) != key_of(gap.peek_prev()?) {
                return Ok(());
            }
        }
        let bytes = key.len() + end.as_ref().map_or(0, Vec::len);
        if self.bytes + bytes > MOST_GAP_BYTES {
            *self = Gaps::default();
        }
        self.bytes += bytes;
        self.by_start.insert(key.to_vec(), end);
        Ok(())
    }
}

/// Finds the row with this key. If there is none, notes the gap in which the search ends.
///
/// # Errors
/// `Corrupted` if there is none, and a key beside its place is damaged.
pub(crate) fn find<'t>(
    table: &'t impl ReadableTable<&'static [u8], &'static [u8]>,
    key: &[u8],
    gaps: Option<&mut Gaps>,
) -> Result<Option<Guard<'t>>, StorageError> {
    let mut gap = table.lower_bound(Bound::Included(key))?;
    match gap.peek_next()? {
        Some((next, row)) if next.value() == key => return Ok(Some(row)),
        Some((next, row)) => check_after(next.value(), row.value(), key)?,
        None => {}
    }
    check_before(&mut gap, key)?;
    if let Some(gaps) = gaps {
        gaps.note(table, key, gap)?;
    }
    Ok(None)
}

/// Whether the row behind this one is where a search for its key ends. Otherwise its key is wrong,
/// and rows of other pages may come before it.
pub(crate) fn is_in_place(
    table: &impl ReadableTable<&'static [u8], &'static [u8]>,
    key: &[u8],
) -> Result<bool, StorageError> {
    let mut behind = table.lower_bound(Bound::Excluded(key))?;
    let Some((end, _)) = behind.peek_next()? else { return Ok(true) };
    let mut at_end = table.lower_bound(Bound::Included(end.value()))?;
    Ok(at_end.peek_prev()?.is_some_and(|(before, _)| before.value() == key))
}

/// The rows from the key `from` on.
///
/// # Errors
/// `Corrupted` if a key beside the place of `from` is damaged.
pub(crate) fn rows_from<'t>(
    table: &'t impl ReadableTable<&'static [u8], &'static [u8]>,
    from: &[u8],
) -> Result<RowCursor<'t>, StorageError> {
    let mut gap = table.lower_bound(Bound::Included(from))?;
    check_before(&mut gap, from)?;
    if let Some((next, row)) = gap.peek_next()? {
        check_after(next.value(), row.value(), from)?;
    }
    Ok(gap)
}

/// Checks the row before a gap that is the place of a key.
fn check_before(gap: &mut RowCursor<'_>, key: &[u8]) -> Result<(), StorageError> {
    let Some((before, row)) = gap.peek_prev()? else { return Ok(()) };
    check_key(before.value(), row.value())?;
    if before.value() >= key {
        return Err(wrong_order());
    }
    Ok(())
}

/// Checks the row after a gap that is the place of a key.
fn check_after(after: &[u8], row: &[u8], key: &[u8]) -> Result<(), StorageError> {
    check_key(after, row)?;
    if after < key {
        return Err(wrong_order());
    }
    Ok(())
}

/// Larger rows, and rows with longer keys, are not checked at each search: the checksum covers the
/// whole row. Inserting 10,000 rows before a row of 16 MiB would read it 10,000 times.
const CHECKED_ROW: usize = 64 << 10;
const CHECKED_KEY: usize = 1 << 10;

/// Fails if a bit of the key of a row has flipped. A damaged row with a whole key passes, because
/// it misleads no search.
pub(crate) fn check_key(key: &[u8], row: &[u8]) -> Result<(), StorageError> {
    let is_checked = row.len() <= CHECKED_ROW && key.len() <= CHECKED_KEY;
    if !is_checked || !layout::has_flipped_bit(key, row) {
        return Ok(());
    }
    let found = layout::Hex(key);
    Err(StorageError::Corrupted(format!(
        "a bit of the key of a row has flipped, and the row is found as {found}"
    )))
}

fn wrong_order() -> StorageError {
    StorageError::Corrupted("the rows around it are in a wrong order".to_owned())
}

#[cfg(test)]
mod tests {
    use redb::{
        Builder, ReadOnlyTable, ReadableDatabase, TableDefinition, backends::InMemoryBackend,
    };

    use super::*;

    type Rows = ReadOnlyTable<&'static [u8], &'static [u8]>;

    const ROWS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("rows");

    fn table(stored: &[u8]) -> Rows {
        let database = Builder::new().create_with_backend(InMemoryBackend::new()).unwrap();
        let txn = database.begin_write().unwrap();
        drop(txn.open_table(ROWS).unwrap());
        for key in stored {
            let mut row = Vec::new();
            let kind = layout::FileRowKind::Plain;
            layout::FileRow { kind, value: b"" }.write(&[*key], &mut row);
            txn.open_table(ROWS).unwrap().insert(&[*key][..], &row[..]).unwrap();
        }
        txn.commit().unwrap();
        database.begin_read().unwrap().open_table(ROWS).unwrap()
    }

    #[test]
    fn a_gap_has_no_key_that_a_search_would_find() {
        let stored = [3_u8, 4, 8, 9, 20];
        let table = table(&stored);
        // After each other search, and after all of them.
        let mut of_all = Gaps::default();
        for first in 0..25 {
            for second in 0..25 {
                let mut gaps = Gaps::default();
                find(&table, &[first], Some(&mut gaps)).unwrap();
                for gaps in [&mut gaps, &mut of_all] {
                    let is_there = stored.contains(&second);
                    assert!(!(gaps.have(&[second]) && is_there), "{second} after {first}");
                    let found = find(&table, &[second], Some(gaps)).unwrap();
                    assert_eq!(found.is_some(), is_there);
                    assert_eq!(gaps.have(&[second]), !is_there, "{second} after {first}");
                }
            }
        }
        let mut gaps = Gaps::default();
        find(&table, &[10], Some(&mut gaps)).unwrap();
        let known: Vec<u8> = (0..25).filter(|key| gaps.have(&[*key])).collect();
        assert_eq!(known, (10..20).collect::<Vec<_>>(), "from the key on");
    }

    #[test]
    fn gaps_have_a_bound() {
        let (table, mut gaps) = (table(&[]), Gaps::default());
        for n in 0..100_000_u32 {
            let key = [&n.to_be_bytes()[..], &[0; 100]].concat();
            find(&table, &key, Some(&mut gaps)).unwrap();
            assert!(gaps.have(&key) && gaps.by_start.len() * key.len() <= MOST_GAP_BYTES);
        }
    }
}
