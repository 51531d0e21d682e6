//! A page of the rows of a range.

use std::ops::Bound;

use bytes::Bytes;
use istorage::{ExpiringRow, Range, Result};

use crate::{
    errors,
    layout::{self, Keyspace},
    mem_table::MemRow,
    search,
    time::Moment,
    view::{RowTable, RowView},
};

/// Limits of a page of a stream: a page ends with the row that reaches one of them. Expired rows
/// count too.
const PAGE_ROWS: usize = 1_000;
const PAGE_BYTES: usize = 1 << 20;

/// Reads a page, and returns the rest of the range if the page did not reach its end. If a row is
/// damaged, the page has the rows before it. The next page begins with the damaged row and fails.
pub(crate) fn read(
    view: &mut RowView,
    keyspace: &Keyspace,
    pkey: &[u8],
    range: &Range,
    now: Moment,
) -> Result<(Vec<ExpiringRow>, Option<Range>)> {
    let (from, end) = layout::row_keys(pkey, range);
    let bound = end.as_ref().map(Vec::as_slice);
    let most = (PAGE_ROWS, PAGE_BYTES);
    let in_memory = view.of_one_moment(|held| held.page(&keyspace.name, &from, bound, most))?;
    let rows = RangeRows { keyspace, pkey, range, from: &from, end: bound, now };
    let table = view.table(keyspace)?;
    let mut part = PartialPage::default();
    let why = match errors::catch_page_error(|| rows.read(table, in_memory, &mut part)) {
        Ok(Ok(rest)) => return Ok((part.rows, rest)),
        Ok(Err(error)) => error,
        Err(page_error) => errors::damaged_row(rows.name(), page_error),
    };
    match part.last {
        Some(last) => Ok((part.rows, Some(range.behind(&last)))),
        None => Err(why),
    }
}

/// The part of a page that was read before an error.
#[derive(Default)]
struct PartialPage {
    rows: Vec<ExpiringRow>,
    /// The number and the bytes of the rows that were read, even if they have expired or were
    /// removed in memory.
    seen: usize,
    bytes: usize,
    /// The clustering columns of the last row that was read.
    last: Option<Bytes>,
}

impl PartialPage {
    fn is_full(&self) -> bool {
        self.seen >= PAGE_ROWS || self.bytes >= PAGE_BYTES
    }
}

/// A range of the rows of a storage partition.
struct RangeRows<'r> {
    keyspace: &'r Keyspace,
    pkey: &'r [u8],
    range: &'r Range,
    from: &'r [u8],
    end: Bound<&'r [u8]>,
    now: Moment,
}

impl RangeRows<'_> {
    fn name(&self) -> String {
        format!("the range from {} on", self.keyspace.row_name(self.from))
    }

    /// Reads rows of the file and of the memory, in order, until the page is full. A row in memory
    /// hides the row of the file, which is then not even parsed. Returns the rest of the range.
    ///
    /// The rows in memory reach as far as a page can.
    fn read(
        &self,
        table: &RowTable,
        in_memory: Vec<(Bytes, MemRow)>,
        part: &mut PartialPage,
    ) -> Result<Option<Range>> {
        let failed = |error| errors::read_error(self.name(), error);
        let mut in_memory = in_memory.into_iter().peekable();
        let mut in_file = search::rows_from(table, self.from).map_err(failed)?;
        let mut next_in_file = in_file.next().map_err(failed)?;
        // The key of the last row of the file, whether it is hidden or not.
        let mut last_in_file = Vec::new();
        while !part.is_full() {
            // 1. Check the place of the next row of the file. A page that took the place of another
            // page has whole rows with right checksums. Only their keys show the damage.
            if let Some((key, row)) = &next_in_file {
                let key = key.value();
                if matches!(self.end, Bound::Excluded(end) if key >= end) {
                    // A wrong key may be too high, and the range goes on after it.
                    search::check_key(key, row.value()).map_err(failed)?;
                    next_in_file = None;
                } else if key < self.from || key <= &last_in_file[..] {
                    let why = "a page holds rows of another range";
                    return Err(errors::damaged_row(self.name(), why));
                }
            }
            // 2. Take the row with the lower key.
            let file = next_in_file.as_ref().map(|(key, _)| key.value());
            let hides = |(key, _): &(Bytes, MemRow)| file.is_none_or(|file| &key[..] <= file);
            if let Some((key, row)) = in_memory.next_if(hides) {
                let is_same = file == Some(&key[..]);
                self.add(&key, row.as_deref(), part)?;
                if !is_same {
                    continue;
                }
            } else if let Some((key, row)) = &next_in_file {
                self.add(key.value(), Some(row.value()), part)?;
            } else {
                return Ok(None);
            }
            // 3. The row of the file is read, or hidden.
            if let Some((key, _)) = next_in_file {
                last_in_file.clear();
                last_in_file.extend_from_slice(key.value());
            }
            next_in_file = in_file.next().map_err(failed)?;
        }
        Ok(part.last.as_ref().map(|last| self.range.behind(last)))
    }

    /// Adds a row to the page, unless it has expired or was removed.
    fn add(&self, key: &[u8], row: Option<&[u8]>, part: &mut PartialPage) -> Result<()> {
        let ccols = Bytes::copy_from_slice(layout::ccols(self.pkey, key));
        if let Some(row) = row {
            let stored = self.keyspace.parse_row(key, row)?;
            if let Some(value) = stored.value_at(self.now) {
                let ttl = stored.kind.expires().map(|at| at.since(self.now));
                part.rows.push(ExpiringRow { ccols: ccols.clone(), value, ttl });
            }
        }
        part.seen += 1;
        part.bytes += key.len() + row.map_or(0, <[u8]>::len);
        part.last = Some(ccols);
        Ok(())
    }
}
