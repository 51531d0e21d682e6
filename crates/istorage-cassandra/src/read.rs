//! Reads of rows.
//!
//! No read holds more than a page in memory, however large the partition or the batch is. A page is
//! fetched when the rows before it have been taken.

use std::{collections::HashMap, ops::ControlFlow, time::Duration};

use bytes::Bytes;
use clock::Instant;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use istorage::{ExpiringRow, Key, Range, Result, Row};
use scylla::{
    deserialize::row::DeserializeRow,
    response::{PagingState, query_result::QueryRowsResult},
    serialize::{
        SerializationError,
        row::{RowSerializationContext, SerializeRow},
        writers::RowWriter,
    },
    statement::prepared::PreparedStatement,
};

use crate::{
    errors::Request,
    layout::{Ranged, Statements},
    limits::SIDE_BY_SIDE,
    session::{Client, Shared},
    ttl,
};

/// The number of rows of the first page. The size of the rows is not known yet.
const FIRST_PAGE_ROWS: i32 = 64;

/// The most rows of a page. More rows make reading no faster.
const PAGE_ROWS: i32 = 1_000;

/// The bytes that a page should hold at most, estimated from the page before it.
const PAGE_BYTES: usize = 4 << 20;

pub(crate) async fn get(
    client: &Client,
    statement: &PreparedStatement,
    key: &Key,
    deadline: Instant,
) -> Result<Option<Bytes>> {
    let values = (&key.pkey[..], &key.ccols[..]);
    let result = client
        .execute(statement, values, deadline)
        .await
        .map_err(|error| Request::Read.failed(error))?;
    let rows = result.into_rows_result().map_err(|error| Request::Read.strange_answer(error))?;
    // The value keeps the whole answer in memory, but the answer holds nothing else.
    let row = rows.maybe_first_row::<(Option<Bytes>,)>();
    Ok(row.map_err(|error| Request::Read.strange_answer(error))?.and_then(|(value,)| value))
}

/// The values of different rows, in the order of `keys`.
pub(crate) async fn get_batch(
    client: &Client,
    statements: &Statements,
    keys: &[Key],
    deadline: Instant,
) -> Result<Vec<Option<Bytes>>> {
    let mut partitions: HashMap<&[u8], Vec<usize>> = HashMap::new();
    for (place, key) in keys.iter().enumerate() {
        partitions.entry(&key.pkey).or_default().push(place);
    }
    let chunk_rows = FIRST_PAGE_ROWS.unsigned_abs() as usize;
    let chunks = partitions.values().flat_map(|places| places.chunks(chunk_rows));
    let chunks: Vec<_> =
        chunks.map(|places| get_chunk(client, statements, keys, places, deadline)).collect();
    let mut values = vec![None; keys.len()];
    let mut found = stream::iter(chunks).buffer_unordered(SIDE_BY_SIDE);
    while let Some(chunk) = found.try_next().await? {
        for (place, value) in chunk {
            values[place] = Some(value);
        }
    }
    Ok(values)
}

/// The values at some places of `keys`. All these keys have one partition key.
async fn get_chunk(
    client: &Client,
    statements: &Statements,
    keys: &[Key],
    places: &[usize],
    deadline: Instant,
) -> Result<Vec<(usize, Bytes)>> {
    if let [place] = *places {
        let value = get(client, &statements.get, &keys[place], deadline).await?;
        return Ok(value.into_iter().map(|value| (place, value)).collect());
    }
    let wanted: HashMap<&[u8], usize> =
        places.iter().map(|place| (&keys[*place].ccols[..], *place)).collect();
    let list: Vec<&[u8]> = wanted.keys().copied().collect();
    let pkey = &keys[places[0]].pkey[..];
    let mut found = Vec::with_capacity(places.len());
    let mut page = PageRequest::first(statements.get_many.clone());
    loop {
        let (rows, next) = page.fetch(client, (pkey, &list), deadline).await?;
        each_row(&rows, |(ccols, value): (&[u8], Option<&[u8]>)| {
            if let (Some(place), Some(value)) = (wanted.get(ccols), value) {
                found.push((*place, Bytes::copy_from_slice(value)));
            }
        })?;
        match next {
            Some(next) => page = next,
            None => return Ok(found),
        }
    }
}

/// A row as the server sends it: its clustering columns, and its value if there is one.
/// [`RawWithTtl`] also has the seconds that the row has left.
type Raw<'frame> = (&'frame [u8], Option<&'frame [u8]>);
type RawWithTtl<'frame> = (&'frame [u8], Option<&'frame [u8]>, Option<i32>);

/// The rows of a range.
pub(crate) fn rows(
    shared: Shared,
    statement: &Ranged,
    pkey: Bytes,
    range: Range,
    page_timeout: Duration,
) -> impl Stream<Item = Result<Row>> + Send + 'static {
    pages(shared, statement, pkey, range, page_timeout, |rows| {
        let mut page = Vec::with_capacity(rows.rows_num());
        each_row(rows, |(ccols, value): Raw<'_>| {
            if let Some(value) = value {
                page.push(Row { ccols: copy(ccols), value: copy(value) });
            }
        })?;
        Ok(page)
    })
}

/// The rows of a range, each with the rest of its TTL.
pub(crate) fn expiring_rows(
    shared: Shared,
    statement: &Ranged,
    pkey: Bytes,
    range: Range,
    page_timeout: Duration,
) -> impl Stream<Item = Result<ExpiringRow>> + Send + 'static {
    pages(shared, statement, pkey, range, page_timeout, |rows| {
        let mut page = Vec::with_capacity(rows.rows_num());
        each_row(rows, |(ccols, value, seconds): RawWithTtl<'_>| {
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

/// The rows that `take` makes from the pages of a range.
fn pages<R: Send + 'static>(
    shared: Shared,
    statement: &Ranged,
    pkey: Bytes,
    range: Range,
    page_timeout: Duration,
    take: impl Fn(&QueryRowsResult) -> Result<Vec<R>> + Send + 'static,
) -> impl Stream<Item = Result<R>> + Send + 'static {
    let statement = if range.end.is_some() { &statement.bounded } else { &statement.open };
    let first = PageRequest::first(statement.clone());
    let values = RangeValues { pkey, range };
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

/// A page that is still to be fetched.
struct PageRequest {
    /// The statement, with the size of the page set.
    statement: PreparedStatement,
    state: PagingState,
}

impl PageRequest {
    fn first(mut statement: PreparedStatement) -> PageRequest {
        statement.set_page_size(FIRST_PAGE_ROWS);
        PageRequest { statement, state: PagingState::start() }
    }

    /// Fetches the page. Also returns the request for the next page, if there is one.
    async fn fetch(
        mut self,
        client: &Client,
        values: impl SerializeRow,
        deadline: Instant,
    ) -> Result<(QueryRowsResult, Option<PageRequest>)> {
        let page = client.page(&self.statement, values, self.state, deadline).await;
        let (result, state) = page.map_err(|error| Request::Read.failed(error))?;
        let rows =
            result.into_rows_result().map_err(|error| Request::Read.strange_answer(error))?;
        let next = match state.into_paging_control_flow() {
            ControlFlow::Break(()) => None,
            ControlFlow::Continue(state) => {
                let size = next_page_rows(
                    self.statement.get_page_size(),
                    rows.rows_num(),
                    rows.rows_bytes_size(),
                );
                self.statement.set_page_size(size);
                Some(PageRequest { statement: self.statement, state })
            }
        };
        Ok((rows, next))
    }
}

/// The number of rows to ask for after a page that was asked for with `size` and that had `rows`
/// rows and `bytes` bytes.
fn next_page_rows(size: i32, rows: usize, bytes: usize) -> i32 {
    let average = (bytes / rows.max(1)).max(1);
    let fitting = i32::try_from(PAGE_BYTES / average).unwrap_or(PAGE_ROWS);
    // The size grows in steps, because the next rows may be larger.
    fitting.min(size.saturating_mul(4)).clamp(1, PAGE_ROWS)
}

fn each_row<'frame, R: DeserializeRow<'frame, 'frame>>(
    rows: &'frame QueryRowsResult,
    mut take: impl FnMut(R),
) -> Result<()> {
    let rows = rows.rows::<R>().map_err(|error| Request::Read.strange_answer(error))?;
    for row in rows {
        take(row.map_err(|error| Request::Read.strange_answer(error))?);
    }
    Ok(())
}

/// The values of a statement of [`Ranged`].
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
    fn a_page_of_small_rows_is_followed_by_larger_ones() {
        let sizes = [64, 256, 1_000, 1_000];
        for pair in sizes.windows(2) {
            assert_eq!(next_page_rows(pair[0], pair[0].unsigned_abs() as usize, 6_400), pair[1]);
        }
    }

    #[test]
    fn a_page_of_large_rows_is_followed_by_a_small_one() {
        assert_eq!(next_page_rows(64, 64, 64 << 20), 4);
        assert_eq!(next_page_rows(4, 4, 64 << 20), 1);
        assert_eq!(next_page_rows(1, 1, 400), 4);
    }

    #[test]
    fn a_page_without_rows_is_followed_by_one() {
        assert_eq!(next_page_rows(1, 0, 0), 4);
        assert_eq!(next_page_rows(1_000, 0, 0), 1_000);
    }
}
