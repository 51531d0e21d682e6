//! A page of the rows of a range.

use std::ops::Bound;

use bytes::Bytes;
use istorage::{ExpiringRow, Range, Result};
use redb::ReadOnlyTable;

use crate::{
    errors,
    layout::{self, Keyspace},
    search,
    time::Moment,
};

/// Limits of a page of a stream: a page ends with the row that reaches one of them. Expired rows
/// count too.
const PAGE_ROWS: usize = 1_000;
const PAGE_BYTES: usize = 1 << 20;

pub(super) type RowTable = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// A part of the rows of a range.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) rows: Vec<ExpiringRow>,
    /// The rest of the range, if the page did not reach its end.
    pub(crate) rest: Option<Range>,
}

/// Reads a page. If a row is damaged, the page has the rows before it. The next page begins with
/// the damaged row and fails.
pub(super) fn read(
    table: &RowTable,
    keyspace: &Keyspace,
    pkey: &[u8],
    range: &Range,
    now: Moment,
) -> Result<Page> {
    let mut part = PartialPage::default();
    let why = match errors::catch_page_error(|| {
        read_rows(table, keyspace, pkey, range, now, &mut part)
    }) {
        Ok(Ok(rest)) => return Ok(Page { rows: part.rows, rest }),
        Ok(Err(error)) => error,
        Err(page_error) => {
            let from = layout::row_key(pkey, &range.start);
            errors::damaged_row(
                format!("the range from {} on", keyspace.row_name(&from)),
                page_error,
            )
        }
    };
    match part.last {
        Some(last) => Ok(Page { rows: part.rows, rest: Some(range.behind(&last)) }),
        None => Err(why),
    }
}

/// The part of a page that was read before an error.
#[derive(Default)]
struct PartialPage {
    rows: Vec<ExpiringRow>,
    /// The clustering columns of the last row that was read, even if that row has expired.
    last: Option<Bytes>,
}

/// Reads rows until the page is full. Returns the rest of the range.
fn read_rows(
    table: &RowTable,
    keyspace: &Keyspace,
    pkey: &[u8],
    range: &Range,
    now: Moment,
    part: &mut PartialPage,
) -> Result<Option<Range>> {
    let (from, end) = layout::row_keys(pkey, range);
    let is_behind = |key: &[u8]| matches!(&end, Bound::Excluded(end) if key >= &end[..]);
    let place = || format!("the range from {} on", keyspace.row_name(&from));
    let failed = |error| errors::read_error(place(), error);
    let mut bytes = 0;
    let (mut rows, mut seen) = (search::rows_from(table, &from).map_err(failed)?, 0);
    while let Some((key, row)) = rows.next().map_err(failed)? {
        let key = key.value();
        if is_behind(key) {
            // A wrong key may be too high, and the range goes on after it.
            search::check_key(key, row.value()).map_err(failed)?;
            break;
        }
        let stored = keyspace.parse_row(key, row.value())?;
        let ccols = Bytes::copy_from_slice(layout::ccols(pkey, key));
        // A page that took the place of another page has whole rows with right checksums. Only
        // their keys show the damage.
        let is_next = part.last.as_ref().is_none_or(|last| *last < ccols);
        if !(is_next && key >= &from[..]) {
            return Err(errors::damaged_row(place(), "a page holds rows of another range"));
        }
        seen += 1;
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
