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

/// The most gaps that are known of a table: some MiB.
const MOST_GAPS: usize = 1 << 14;

/// Gaps of a table in which searches have ended. Most rows that are written are new, and come after
/// the rows of their kind, so few searches have to be made.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    /// The key after each gap, by the key before it, which is empty at the beginning of the table.
    /// `None` at its end.
    by_start: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl Gaps {
    /// Whether a key is in one of the gaps.
    pub(crate) fn have(&self, key: &[u8]) -> bool {
        let mut before = self.by_start.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(key)));
        let after = before.next_back().map(|(_, after)| after);
        after.is_some_and(|after| after.as_ref().is_none_or(|after| key < &after[..]))
    }
}

/// Finds the row with this key. Notes the gap in which the search ends if there is none.
///
/// # Errors
/// `Corrupted` if there is none, and a key beside its place is damaged.
pub(crate) fn find<'t>(
    table: &'t impl ReadableTable<&'static [u8], &'static [u8]>,
    key: &[u8],
    gaps: &mut Gaps,
) -> Result<Option<Guard<'t>>, StorageError> {
    let mut gap = table.lower_bound(Bound::Included(key))?;
    let after = match gap.peek_next()? {
        Some((next, row)) if next.value() == key => return Ok(Some(row)),
        Some((next, row)) => {
            check_after(next.value(), row.value(), key)?;
            Some(next.value().to_vec())
        }
        None => None,
    };
    let before = check_before(&mut gap, key)?;
    if gaps.by_start.len() >= MOST_GAPS {
        gaps.by_start.clear();
    }
    gaps.by_start.insert(before.unwrap_or_default(), after);
    Ok(None)
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

/// Checks the row before a gap that is the place of a key. Returns its key.
fn check_before(gap: &mut RowCursor<'_>, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
    let Some((before, row)) = gap.peek_prev()? else { return Ok(None) };
    check_key(before.value(), row.value())?;
    if before.value() >= key {
        return Err(wrong_order());
    }
    Ok(Some(before.value().to_vec()))
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
    use redb::{Builder, ReadableDatabase, TableDefinition, backends::InMemoryBackend};

    use super::*;

    const ROWS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("rows");

    #[test]
    fn a_gap_has_exactly_the_keys_that_a_search_would_not_find() {
        let database = Builder::new().create_with_backend(InMemoryBackend::new()).unwrap();
        let stored = [3_u8, 4, 8, 9, 20];
        let txn = database.begin_write().unwrap();
        for key in stored {
            let mut row = Vec::new();
            let kind = layout::FileRowKind::Plain;
            layout::FileRow { kind, value: b"" }.write(&[key], &mut row);
            txn.open_table(ROWS).unwrap().insert(&[key][..], &row[..]).unwrap();
        }
        txn.commit().unwrap();
        let table = database.begin_read().unwrap().open_table(ROWS).unwrap();
        // In each order of two searches, and after all of them.
        let mut of_all = Gaps::default();
        for first in 0..25 {
            for second in 0..25 {
                let mut gaps = Gaps::default();
                find(&table, &[first], &mut gaps).unwrap();
                for gaps in [&mut gaps, &mut of_all] {
                    let is_there = stored.contains(&second);
                    assert!(!(gaps.have(&[second]) && is_there), "{second} after {first}");
                    assert_eq!(find(&table, &[second], gaps).unwrap().is_some(), is_there);
                    assert_eq!(gaps.have(&[second]), !is_there, "{second} after {first}");
                }
            }
        }
        assert_eq!(of_all.by_start.len(), 4, "{of_all:?}");
    }
}
