//! Reads of rows.
//!
//! No read holds more than a page in memory, however large the partition or the batch is. A page is
//! fetched when the caller has taken the rows before it.

mod page;

use std::{collections::HashMap, time::Duration};

use bytes::Bytes;
use clock::Instant;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use istorage::{ExpiringRow, FoundRow, Key, Range, Result, Row};
use scylla::{
    response::query_result::QueryRowsResult,
    serialize::{
        SerializationError,
        row::{RowSerializationContext, SerializeRow},
        writers::RowWriter,
    },
    statement::prepared::PreparedStatement,
};

use self::page::{FIRST_PAGE_ROWS, PageRequest, for_each_row};
use crate::{
    errors::RequestKind,
    layout::{BatchStatements, RangeStatements},
    limits::SIDE_BY_SIDE,
    session::{SessionClient, SharedClient},
    timestamps, ttl,
};

pub(crate) async fn get(
    client: &SessionClient,
    statement: &PreparedStatement,
    key: &Key,
    deadline: Instant,
) -> Result<Option<Bytes>> {
    let values = (&key.pkey[..], &key.ccols[..]);
    let result = client
        .execute(statement, values, deadline)
        .await
        .map_err(|error| RequestKind::Read.failed(error))?;
    let rows =
        result.into_rows_result().map_err(|error| RequestKind::Read.unexpected_answer(error))?;
    // The value keeps the whole answer in memory, but the answer holds nothing else.
    let row = rows.maybe_first_row::<(Option<Bytes>,)>();
    Ok(row.map_err(|error| RequestKind::Read.unexpected_answer(error))?.and_then(|(value,)| value))
}

/// A row of a batch.
#[derive(Clone, Debug)]
pub(crate) struct ReadRow {
    pub(crate) value: Bytes,
    /// When the row was written, if the statement asks for it.
    written_at: Option<i64>,
}

impl ReadRow {
    pub(crate) fn found(self) -> FoundRow {
        let hides_ordered = self.written_at.is_none_or(timestamps::hides_ordered);
        FoundRow { value: self.value, hides_ordered }
    }
}

/// Different rows, in the order of `keys`.
pub(crate) async fn get_batch(
    client: &SessionClient,
    statements: &BatchStatements,
    keys: &[Key],
    deadline: Instant,
) -> Result<Vec<Option<ReadRow>>> {
    let mut partitions: HashMap<&[u8], Vec<usize>> = HashMap::new();
    for (place, key) in keys.iter().enumerate() {
        partitions.entry(&key.pkey).or_default().push(place);
    }
    let chunk_rows = FIRST_PAGE_ROWS.unsigned_abs() as usize;
    let chunks = partitions.values().flat_map(|places| places.chunks(chunk_rows));
    let chunks: Vec<_> =
        chunks.map(|places| get_chunk(client, statements, keys, places, deadline)).collect();
    let mut rows = vec![None; keys.len()];
    let mut found = stream::iter(chunks).buffer_unordered(SIDE_BY_SIDE);
    while let Some(chunk) = found.try_next().await? {
        for (place, row) in chunk {
            rows[place] = Some(row);
        }
    }
    Ok(rows)
}

/// The rows at some places of `keys`. All these keys have one partition key.
async fn get_chunk(
    client: &SessionClient,
    statements: &BatchStatements,
    keys: &[Key],
    places: &[usize],
    deadline: Instant,
) -> Result<Vec<(usize, ReadRow)>> {
    let with_times = statements.with_times;
    let pkey = &keys[places[0]].pkey[..];
    let wanted: HashMap<&[u8], usize> =
        places.iter().map(|place| (&keys[*place].ccols[..], *place)).collect();
    let mut found = Vec::with_capacity(places.len());
    if let [place] = *places {
        let page = PageRequest::first(statements.one.clone());
        let (rows, _) = page.fetch(client, (pkey, &keys[place].ccols[..]), deadline).await?;
        add_rows(&rows, with_times, &wanted, &mut found)?;
        return Ok(found);
    }
    let mut ccols: Vec<&[u8]> = wanted.keys().copied().collect();
    ccols.sort_unstable();
    let (statement, rows) = match ccols[..] {
        [first, .., last] if is_run(&ccols) => (&statements.run, ChunkRows::Run { first, last }),
        _ => (&statements.many, ChunkRows::List(ccols)),
    };
    let mut page = PageRequest::first(statement.clone());
    loop {
        let (rows, next) = page.fetch(client, ChunkValues { pkey, rows: &rows }, deadline).await?;
        add_rows(&rows, with_times, &wanted, &mut found)?;
        match next {
            Some(next) => page = next,
            None => return Ok(found),
        }
    }
}

/// Returns whether keys follow each other without a gap, as the keys of neighbours do: each key is
/// the previous one plus one, in its last two bytes. The keys are sorted.
///
/// A range costs the servers less than a list of keys.
fn is_run(ccols: &[&[u8]]) -> bool {
    ccols.windows(2).all(|pair| {
        let (Some((start, low)), Some((next_start, next_low))) =
            (pair[0].split_last_chunk::<2>(), pair[1].split_last_chunk::<2>())
        else {
            return false;
        };
        let next = u16::from_be_bytes(*low).checked_add(1);
        start == next_start && next == Some(u16::from_be_bytes(*next_low))
    })
}

/// Adds the rows of a page. A row without a value is absent.
fn add_rows(
    rows: &QueryRowsResult,
    with_times: bool,
    wanted: &HashMap<&[u8], usize>,
    found: &mut Vec<(usize, ReadRow)>,
) -> Result<()> {
    let mut add = |ccols, value, written_at| {
        if let (Some(place), Some(value)) = (wanted.get(ccols), value) {
            found.push((*place, ReadRow { value: copy(value), written_at }));
        }
    };
    match with_times {
        true => for_each_row(rows, |(ccols, value, at): RawRowWithTime<'_>| add(ccols, value, at)),
        false => for_each_row(rows, |(ccols, value): RawRow<'_>| add(ccols, value, None)),
    }
}

/// A row as the server sends it: its clustering columns, and its value if there is one.
/// [`RawRowWithTtl`] also has the seconds that the row has left, and [`RawRowWithTime`] the time of
/// its write.
type RawRow<'frame> = (&'frame [u8], Option<&'frame [u8]>);
type RawRowWithTtl<'frame> = (&'frame [u8], Option<&'frame [u8]>, Option<i32>);
type RawRowWithTime<'frame> = (&'frame [u8], Option<&'frame [u8]>, Option<i64>);

/// The rows of a range.
pub(crate) fn rows(
    shared: SharedClient,
    statement: &RangeStatements,
    pkey: Bytes,
    range: Range,
    page_timeout: Duration,
) -> impl Stream<Item = Result<Row>> + Send + 'static {
    range_pages(shared, statement, pkey, range, page_timeout, |rows| {
        let mut page = Vec::with_capacity(rows.rows_num());
        for_each_row(rows, |(ccols, value): RawRow<'_>| {
            if let Some(value) = value {
                page.push(Row { ccols: copy(ccols), value: copy(value) });
            }
        })?;
        Ok(page)
    })
}

/// The rows of a range, each with the rest of its TTL.
pub(crate) fn expiring_rows(
    shared: SharedClient,
    statement: &RangeStatements,
    pkey: Bytes,
    range: Range,
    page_timeout: Duration,
) -> impl Stream<Item = Result<ExpiringRow>> + Send + 'static {
    range_pages(shared, statement, pkey, range, page_timeout, |rows| {
        let mut page = Vec::with_capacity(rows.rows_num());
        for_each_row(rows, |(ccols, value, seconds): RawRowWithTtl<'_>| {
            if let Some(value) = value {
                let ttl = seconds.map(ttl::left);
                page.push(ExpiringRow { ccols: copy(ccols), value: copy(value), ttl });
            }
        })?;
        Ok(page)
    })
}

/// Copies a part of a row out of its page, so that a row that is kept in memory does not keep the
/// whole page.
fn copy(part: &[u8]) -> Bytes {
    Bytes::copy_from_slice(part)
}

/// The keys of all partitions that begin with `prefix`, in the order of their tokens.
pub(crate) fn partitions(
    shared: SharedClient,
    statement: PreparedStatement,
    prefix: Bytes,
    page_timeout: Duration,
) -> impl Stream<Item = Result<Bytes>> + Send + 'static {
    pages(shared, statement, (), page_timeout, move |rows| {
        let mut page = Vec::new();
        for_each_row(rows, |(pkey,): (&[u8],)| {
            if pkey.starts_with(&prefix) {
                page.push(copy(pkey));
            }
        })?;
        Ok(page)
    })
}

/// The rows that `take` makes from the pages of a range.
fn range_pages<R: Send + 'static>(
    shared: SharedClient,
    statement: &RangeStatements,
    pkey: Bytes,
    range: Range,
    page_timeout: Duration,
    take: impl Fn(&QueryRowsResult) -> Result<Vec<R>> + Send + 'static,
) -> impl Stream<Item = Result<R>> + Send + 'static {
    let statement = if range.end.is_some() { &statement.bounded } else { &statement.open };
    pages(shared, statement.clone(), RangeValues { pkey, range }, page_timeout, take)
}

/// What `take` makes from the pages of a statement.
fn pages<R: Send + 'static>(
    shared: SharedClient,
    statement: PreparedStatement,
    values: impl SerializeRow + Send + Sync + 'static,
    page_timeout: Duration,
    take: impl Fn(&QueryRowsResult) -> Result<Vec<R>> + Send + 'static,
) -> impl Stream<Item = Result<R>> + Send + 'static {
    let first = PageRequest::first(statement);
    let pages = stream::try_unfold(
        (Some(first), shared, values, take),
        move |(page, shared, values, take)| async move {
            let Some(page) = page else {
                return Ok(None);
            };
            let client = shared.client().await?;
            let deadline = client.deadline(page_timeout);
            let (rows, next) = page.fetch(&client, &values, deadline).await?;
            drop(client);
            let rows = take(&rows)?;
            Ok(Some((stream::iter(rows.into_iter().map(Ok)), (next, shared, values, take))))
        },
    );
    pages.try_flatten()
}

/// The rows that a chunk reads from its storage partition.
enum ChunkRows<'k> {
    List(Vec<&'k [u8]>),
    /// The rows from the first key to the last one. There may also be rows with longer keys.
    Run {
        first: &'k [u8],
        last: &'k [u8],
    },
}

/// The values of a statement of [`BatchStatements`] for more than one row.
struct ChunkValues<'k> {
    pkey: &'k [u8],
    rows: &'k ChunkRows<'k>,
}

impl SerializeRow for ChunkValues<'_> {
    fn serialize(
        &self,
        ctx: &RowSerializationContext<'_>,
        writer: &mut RowWriter<'_>,
    ) -> std::result::Result<(), SerializationError> {
        match self.rows {
            ChunkRows::List(list) => (self.pkey, list).serialize(ctx, writer),
            ChunkRows::Run { first, last } => (self.pkey, *first, *last).serialize(ctx, writer),
        }
    }

    fn is_empty(&self) -> bool {
        false
    }
}

/// The values of a statement of [`RangeStatements`].
struct RangeValues {
    pkey: Bytes,
    range: Range,
}

impl SerializeRow for RangeValues {
    fn serialize(
        &self,
        ctx: &RowSerializationContext<'_>,
        writer: &mut RowWriter<'_>,
    ) -> std::result::Result<(), SerializationError> {
        let (pkey, start) = (&self.pkey[..], &self.range.start[..]);
        match &self.range.end {
            Some(end) => (pkey, start, &end[..]).serialize(ctx, writer),
            None => (pkey, start).serialize(ctx, writer),
        }
    }

    fn is_empty(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_without_a_gap_are_a_run() {
        let is = |keys: &[&[u8]]| is_run(keys);
        assert!(is(&[&[0, 1], &[0, 2]]));
        assert!(is(&[&[0, 255], &[1, 0], &[1, 1]]));
        assert!(is(&[&[7, 7, 0, 1], &[7, 7, 0, 2]]));
        assert!(!is(&[&[0, 1], &[0, 3]]), "a gap");
        assert!(!is(&[&[255, 255], &[255, 255, 0]]), "a longer key");
        assert!(!is(&[&[1, 0, 1], &[2, 0, 2]]), "another beginning");
        assert!(!is(&[&[0, 255, 255], &[1, 0, 0]]), "beyond the two last bytes");
        assert!(!is(&[&[1], &[2]]) && !is(&[&[], &[1]]), "short keys");
    }
}
