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

use std::ops::Bound;

use redb::{AccessGuard, Cursor, ReadableTable, StorageError};

use crate::layout;

type Guard<'t> = AccessGuard<'t, &'static [u8]>;

/// Rows, from the gap before the first of them.
pub(crate) type RowCursor<'t> = Cursor<'t, &'static [u8], &'static [u8]>;

/// What a search has found.
pub(crate) enum Found<'t> {
    Row(Guard<'t>),
    /// No row. The gap is the place of the key.
    Nothing(RowCursor<'t>),
}

/// Searches for the row with this key.
///
/// # Errors
/// `Corrupted` if there is none, and a key beside its place is damaged.
pub(crate) fn find<'t>(
    table: &'t impl ReadableTable<&'static [u8], &'static [u8]>,
    key: &[u8],
) -> Result<Found<'t>, StorageError> {
    let mut gap = table.lower_bound(Bound::Included(key))?;
    match gap.peek_next()? {
        Some((next, row)) if next.value() == key => return Ok(Found::Row(row)),
        Some((next, row)) => check_after(next.value(), row.value(), key)?,
        None => {}
    }
    check_before(&mut gap, key)?;
    Ok(Found::Nothing(gap))
}

/// A part of a table in which a search has shown that there are no rows, from `start` on. `end` is
/// the key of the next row; `None` is the end of the table.
pub(crate) struct Gap {
    pub(crate) start: Vec<u8>,
    pub(crate) end: Option<Vec<u8>>,
}

/// The part without rows from `key` on, whose search has ended in this gap. `None` if the key of
/// the next row is wrong.
pub(crate) fn gap_from(
    table: &impl ReadableTable<&'static [u8], &'static [u8]>,
    key: &[u8],
    mut gap: RowCursor<'_>,
) -> Result<Option<Gap>, StorageError> {
    let end = gap.peek_next()?.map(|(end, _)| end.value().to_vec());
    if let Some(end) = &end {
        let before = gap.peek_prev()?.map(|(before, _)| before);
        if !is_right_behind(table, end, before.as_ref().map(Guard::value))? {
            return Ok(None);
        }
    }
    Ok(Some(Gap { start: key.to_vec(), end }))
}

/// Whether the row behind this one has a right key, so that no row of another page comes between
/// the two.
pub(crate) fn is_in_place(
    table: &impl ReadableTable<&'static [u8], &'static [u8]>,
    key: &[u8],
) -> Result<bool, StorageError> {
    let mut behind = table.lower_bound(Bound::Excluded(key))?;
    match behind.peek_next()? {
        Some((end, _)) => is_right_behind(table, end.value(), Some(key)),
        None => Ok(true),
    }
}

/// Whether a search for the key `end` ends right behind the key `before`, or at the beginning of
/// the table.
///
/// A wrong key of a row may be so high that rows of other pages come before it. The search for such
/// a key ends at another place. So what a damaged page hides does not become more.
fn is_right_behind(
    table: &impl ReadableTable<&'static [u8], &'static [u8]>,
    end: &[u8],
    before: Option<&[u8]>,
) -> Result<bool, StorageError> {
    let mut at_end = table.lower_bound(Bound::Included(end))?;
    let found = at_end.peek_prev()?.map(|(found, _)| found);
    Ok(found.as_ref().map(Guard::value) == before)
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
