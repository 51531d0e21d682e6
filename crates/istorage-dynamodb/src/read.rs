//! Reads of rows. All reads are consistent. Each answer is judged by two readings of the clocks:
//! one before the read was sent, and one when the answer has come.

use std::{collections::HashMap, time::Duration};

use aws_sdk_dynamodb::{
    operation::{query::QueryOutput, scan::ScanOutput},
    types::KeysAndAttributes,
};
use bytes::Bytes;
use clock::Instant;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use istorage::{ExpiringRow, FoundRow, Key, Range, Result, ServerTime};

use crate::{
    errors::RequestFailure,
    layout::{self, Item, ItemContent},
    table::KeyspaceTable,
    table_leases::{AnswerTime, RowLife, TableLeases},
    time::{EXPIRY_RESOLUTION, ServiceTime},
};

/// The most keys that DynamoDB takes in one batch.
const KEYS_MAX: usize = 100;

/// The most rows of a page. A megabyte, DynamoDB's own limit, holds tens of thousands of small
/// rows, and the first row waits for all of them.
const PAGE: i32 = 1_000;

/// How often a call asks for the time when the time is in doubt. Three answers that agree end most
/// doubts.
const ASKS_MAX: u32 = 5;

/// The number of requests of one call that are under way at once.
pub(crate) const SIDE_BY_SIDE: usize = 8;

impl KeyspaceTable {
    pub(crate) async fn get(&self, key: &Key, deadline: Instant) -> Result<Option<Bytes>> {
        let sent = self.connection.clock().now();
        let request = self.ask(deadline, |client| {
            client
                .get_item()
                .table_name(&*self.name)
                .set_key(Some(layout::key(&key.pkey, &key.ccols)))
                .consistent_read(true)
                .projection_expression(layout::ROW)
                .send()
        });
        let answer = request.await.map_err(RequestFailure::into_read_error)?;
        TableLeases(self)
            .answer_time(sent)?
            .live_row(&key.pkey, &key.ccols, answer.item)
            .map(|row| row.map(|row| row.value))
    }

    pub(crate) async fn get_batch(
        &self,
        keys: &[Key],
        deadline: Instant,
    ) -> Result<Vec<Option<FoundRow>>> {
        let chunks: Vec<_> =
            keys.chunks(KEYS_MAX).map(|keys| self.get_chunk(keys, deadline)).collect();
        stream::iter(chunks).buffered(SIDE_BY_SIDE).try_concat().await
    }

    /// Up to [`KEYS_MAX`] different rows.
    async fn get_chunk(&self, keys: &[Key], deadline: Instant) -> Result<Vec<Option<FoundRow>>> {
        let places: HashMap<&Key, usize> =
            keys.iter().enumerate().map(|(place, key)| (key, place)).collect();
        let mut rows = vec![None; keys.len()];
        let mut left: Vec<Item> =
            keys.iter().map(|key| layout::key(&key.pkey, &key.ccols)).collect();
        let mut backoff = self.connection.backoff(deadline);
        loop {
            let sent = self.connection.clock().now();
            let request = self.ask(deadline, |client| {
                let request = client.batch_get_item();
                async {
                    let keys = KeysAndAttributes::builder()
                        .set_keys(Some(left.clone()))
                        .consistent_read(true)
                        .projection_expression(layout::ROW_ANYWHERE)
                        .build()?;
                    request.request_items(&*self.name, keys).send().await
                }
            });
            let answer = request.await.map_err(RequestFailure::into_read_error)?;
            let answered_at = TableLeases(self).answer_time(sent)?;
            for item in answer.responses.into_iter().flatten().flat_map(|(_, items)| items) {
                let (key, row) = keyed_row(item, &answered_at)?;
                if let Some(place) = places.get(&key) {
                    rows[*place] = row;
                }
            }
            let unprocessed = answer.unprocessed_keys.into_iter().flatten();
            left = unprocessed.flat_map(|(_, keys)| keys.keys).collect();
            if left.is_empty() {
                return Ok(rows);
            }
            if !backoff.wait().await {
                return Err(RequestFailure::unfinished("not all rows were read").into_read_error());
            }
        }
    }

    /// The rows of a range, one page after another.
    pub(crate) fn rows(
        &self,
        pkey: Bytes,
        range: Range,
        page_timeout: Duration,
    ) -> impl Stream<Item = Result<ExpiringRow>> + Send + 'static {
        let table = self.clone();
        let first_page: Option<Option<Item>> = Some(None);
        stream::try_unfold(first_page, move |page| {
            let (table, pkey, range) = (table.clone(), pkey.clone(), range.clone());
            async move {
                let Some(behind) = page else { return Ok(None) };
                let sent = table.connection.clock().now();
                let answer = table.page(&pkey, &range, behind, page_timeout).await?;
                let answered_at = TableLeases(&table).answer_time(sent)?;
                // The service may give a last key although no row follows, and a page may be empty
                // although rows follow.
                let next = answer.last_evaluated_key.map(Some);
                let rows = answer.items.unwrap_or_default().into_iter();
                let rows = rows.filter_map(move |item| {
                    live_row(item, &pkey, &range, &answered_at).transpose()
                });
                Ok(Some((stream::iter(rows), next)))
            }
        })
        .try_flatten()
    }

    async fn page(
        &self,
        pkey: &Bytes,
        range: &Range,
        behind: Option<Item>,
        timeout: Duration,
    ) -> Result<QueryOutput> {
        let deadline = self.connection.clock().now() + timeout;
        let request = self.ask(deadline, |client| {
            let rows = layout::range(pkey, range);
            client
                .query()
                .table_name(&*self.name)
                .consistent_read(true)
                .limit(PAGE)
                .projection_expression(layout::ROW_IN_PARTITION)
                .key_condition_expression(rows.text)
                .set_expression_attribute_values(Some(rows.values))
                .set_exclusive_start_key(behind.clone())
                .send()
        });
        request.await.map_err(RequestFailure::into_read_error)
    }

    /// The keys of the partitions that begin with `prefix`. The rows of a partition come one after
    /// another, so it is enough to compare each key with the previous one.
    pub(crate) fn partitions(
        &self,
        prefix: Bytes,
        page_timeout: Duration,
    ) -> impl Stream<Item = Result<Bytes>> + Send + 'static {
        let table = self.clone();
        let first_page: (Option<Option<Item>>, Option<Bytes>) = (Some(None), None);
        stream::try_unfold(first_page, move |(page, mut last)| {
            let (table, prefix) = (table.clone(), prefix.clone());
            async move {
                let Some(behind) = page else { return Ok(None) };
                let answer = table.keys_page(behind, page_timeout).await?;
                let mut keys = Vec::new();
                for mut item in answer.items.unwrap_or_default() {
                    let pkey = layout::take_pkey(&mut item)?;
                    if last.as_ref() != Some(&pkey) {
                        if pkey.starts_with(&prefix) {
                            keys.push(Ok(pkey.clone()));
                        }
                        last = Some(pkey);
                    }
                }
                let next = answer.last_evaluated_key.map(Some);
                Ok(Some((stream::iter(keys), (next, last))))
            }
        })
        .try_flatten()
    }

    async fn keys_page(&self, behind: Option<Item>, timeout: Duration) -> Result<ScanOutput> {
        let deadline = self.connection.clock().now() + timeout;
        let request = self.ask(deadline, |client| {
            client
                .scan()
                .table_name(&*self.name)
                .consistent_read(true)
                .projection_expression(layout::PARTITION)
                .set_exclusive_start_key(behind.clone())
                .send()
        });
        request.await.map_err(RequestFailure::into_read_error)
    }

    /// The service's time, for the expiry of an ordered row. Asks the service if no answer came for
    /// a long time, or if answers contradict each other.
    pub(crate) async fn time(&self, deadline: Instant) -> Result<ServiceTime> {
        let clock = self.connection.service_clock();
        if let Some(time) = clock.now().filter(|time| time.width() <= EXPIRY_RESOLUTION) {
            return Ok(time);
        }
        if !clock.is_in_doubt() {
            self.ask_for_time(deadline).await?;
        }
        self.end_doubt(deadline).await?;
        self.connection.service_time()
    }

    /// Asks for the time over other connections, until the answers agree or more answers would not
    /// help.
    pub(crate) async fn end_doubt(&self, deadline: Instant) -> Result<()> {
        for _ in 0..ASKS_MAX {
            if !self.connection.service_clock().needs_answers() {
                break;
            }
            self.ask_for_time(deadline).await?;
        }
        Ok(())
    }

    async fn ask_for_time(&self, deadline: Instant) -> Result<()> {
        let request = self
            .connection
            .ask(deadline, |client| client.describe_table().table_name(&*self.name).send());
        match request.await {
            // Every answer carries the time, even "no such table".
            Err(failure) if !failure.is_no_table() => Err(failure.into_read_error()),
            _ => Ok(()),
        }
    }

    /// The service's time after one more answer.
    pub(crate) async fn server_time(&self, deadline: Instant) -> Result<ServerTime> {
        self.ask_for_time(deadline).await?;
        let time = self.connection.service_time()?;
        Ok(ServerTime { at: time.earliest, uncertainty: time.width() })
    }
}

fn keyed_row(mut item: Item, answered_at: &AnswerTime) -> Result<(Key, Option<FoundRow>)> {
    let key = Key { pkey: layout::take_pkey(&mut item)?, ccols: layout::take_ccols(&mut item)? };
    let row = answered_at.live_row(&key.pkey, &key.ccols, Some(item))?;
    Ok((key, row))
}

/// The row of an item; `None` if the row has expired or is the row at the end of the range.
fn live_row(
    mut item: Item,
    pkey: &Bytes,
    range: &Range,
    answered_at: &AnswerTime,
) -> Result<Option<ExpiringRow>> {
    let ccols = layout::take_ccols(&mut item)?;
    let stored = ItemContent::read(&mut item)?;
    if range.end.as_ref() == Some(&ccols) {
        return Ok(None);
    }
    let ttl = match answered_at.row_life(pkey, &ccols, &stored) {
        RowLife::Expired => return Ok(None),
        RowLife::Left(left) => Some(left),
        RowLife::Unlimited => None,
    };
    Ok(Some(ExpiringRow { ccols, value: stored.value, ttl }))
}

#[cfg(test)]
mod tests;
