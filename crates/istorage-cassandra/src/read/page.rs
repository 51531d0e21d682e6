//! Fetches one page of rows, and determines the size of the next page.

use std::ops::ControlFlow;

use clock::Instant;
use istorage::Result;
use scylla::{
    deserialize::row::DeserializeRow,
    response::{PagingState, query_result::QueryRowsResult},
    serialize::row::SerializeRow,
    statement::prepared::PreparedStatement,
};

use crate::{errors::RequestKind, session::SessionClient};

/// The number of rows of the first page. The size of the rows is not known yet.
pub(super) const FIRST_PAGE_ROWS: i32 = 64;

/// The most rows of a page. More rows make reading no faster.
const PAGE_ROWS: i32 = 1_000;

/// The bytes that a page should hold at most, estimated from the page before it.
const PAGE_BYTES: usize = 4 << 20;

/// A page that is still to be fetched.
pub(super) struct PageRequest {
    /// The statement, with the size of the page set.
    statement: PreparedStatement,
    state: PagingState,
}

impl PageRequest {
    pub(super) fn first(mut statement: PreparedStatement) -> PageRequest {
        statement.set_page_size(FIRST_PAGE_ROWS);
        PageRequest { statement, state: PagingState::start() }
    }

    /// Fetches the page. Also returns the request for the next page, if there is one.
    pub(super) async fn fetch(
        mut self,
        client: &SessionClient,
        values: impl SerializeRow,
        deadline: Instant,
    ) -> Result<(QueryRowsResult, Option<PageRequest>)> {
        let page = client.page(&self.statement, values, self.state, deadline).await;
        let (result, state) = page.map_err(|error| RequestKind::Read.failed(error))?;
        let rows = result
            .into_rows_result()
            .map_err(|error| RequestKind::Read.unexpected_answer(error))?;
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

/// How many rows the next page asks for. The page before asked for `size` rows, and had `rows` rows
/// and `bytes` bytes.
fn next_page_rows(size: i32, rows: usize, bytes: usize) -> i32 {
    let average = (bytes / rows.max(1)).max(1);
    let fitting = i32::try_from(PAGE_BYTES / average).unwrap_or(PAGE_ROWS);
    // The size grows in steps, because the next rows may be larger.
    fitting.min(size.saturating_mul(4)).clamp(1, PAGE_ROWS)
}

pub(super) fn for_each_row<'frame, R: DeserializeRow<'frame, 'frame>>(
    rows: &'frame QueryRowsResult,
    mut take: impl FnMut(R),
) -> Result<()> {
    let rows = rows.rows::<R>().map_err(|error| RequestKind::Read.unexpected_answer(error))?;
    for row in rows {
        take(row.map_err(|error| RequestKind::Read.unexpected_answer(error))?);
    }
    Ok(())
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
