//! Reads. All are consistent, and each judges expiry by one reading of the service's time, taken when the answer is there.

use std::{collections::HashMap, time::Duration};

use aws_sdk_dynamodb::{operation::query::QueryOutput, types::KeysAndAttributes};
use bytes::Bytes;
use clock::Instant;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use istorage::{ExpiringRow, Key, Range, Result, ServerTime};

use crate::{
    errors::Failure,
    layout::{self, Item, Stored},
    storage::EXPIRY_RESOLUTION,
    table::Table,
    time::ServiceTime,
};

/// The most keys that DynamoDB takes in one batch.
const KEYS_MAX: usize = 100;

/// The most rows of a page: small ones fill DynamoDB's megabyte by tens of thousands, and the first row waits for all.
const PAGE: i32 = 1_000;

/// How many requests of one call are under way at once.
pub(crate) const SIDE_BY_SIDE: usize = 8;

impl Table {
    pub(crate) async fn get(&self, key: &Key, deadline: Instant) -> Result<Option<Bytes>> {
        let request = self.connection.ask(deadline, |client| {
            client
                .get_item()
                .table_name(&*self.name)
                .set_key(Some(layout::key(&key.pkey, &key.ccols)))
                .consistent_read(true)
                .projection_expression(layout::ROW)
                .send()
        });
        let answer = request.await.map_err(Failure::of_read)?;
        layout::live_value(answer.item, self.connection.service_time()?)
    }

    pub(crate) async fn get_batch(
        &self,
        keys: &[Key],
        deadline: Instant,
    ) -> Result<Vec<Option<Bytes>>> {
        let chunks: Vec<_> =
            keys.chunks(KEYS_MAX).map(|keys| self.get_chunk(keys, deadline)).collect();
        stream::iter(chunks).buffered(SIDE_BY_SIDE).try_concat().await
    }

    /// The values of up to [`KEYS_MAX`] different rows.
    async fn get_chunk(&self, keys: &[Key], deadline: Instant) -> Result<Vec<Option<Bytes>>> {
        let places: HashMap<&Key, usize> =
            keys.iter().enumerate().map(|(place, key)| (key, place)).collect();
        let mut values = vec![None; keys.len()];
        let mut left: Vec<Item> =
            keys.iter().map(|key| layout::key(&key.pkey, &key.ccols)).collect();
        let mut backoff = self.connection.backoff(deadline);
        loop {
            let request = self.connection.ask(deadline, |client| {
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
            let answer = request.await.map_err(Failure::of_read)?;
            let now = self.connection.service_time()?;
            for item in answer.responses.into_iter().flatten().flat_map(|(_, items)| items) {
                let (key, value) = keyed_value(item, now)?;
                if let Some(place) = places.get(&key) {
                    values[*place] = value;
                }
            }
            let unprocessed = answer.unprocessed_keys.into_iter().flatten();
            left = unprocessed.flat_map(|(_, keys)| keys.keys).collect();
            if left.is_empty() {
                return Ok(values);
            }
            if !backoff.wait().await {
                return Err(Failure::unfinished("not all rows were read").of_read());
            }
        }
    }

    /// The rows of a range, a page at a time.
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
                let answer = table.page(&pkey, &range, behind, page_timeout).await?;
                let now = table.connection.service_time()?;
                // A last key may come although nothing follows, and a page may be empty although something does.
                let next = answer.last_evaluated_key.map(Some);
                let rows = answer.items.unwrap_or_default().into_iter();
                let rows = rows.filter_map(move |item| live_row(item, &range, now).transpose());
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
        let request = self.connection.ask(deadline, |client| {
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
        request.await.map_err(Failure::of_read)
    }

    /// The service's time, surely enough to write rows that live for `ttl`. The service is asked for
    /// it if no answer came for long, or answers contradict each other.
    pub(crate) async fn time(
        &self,
        ttl: Option<Duration>,
        deadline: Instant,
    ) -> Result<ServiceTime> {
        self.connection.service_clock().rows_live(ttl.unwrap_or_default());
        match self.connection.service_clock().now() {
            Some(time) if time.width() <= EXPIRY_RESOLUTION => Ok(time),
            _ => self.ask_for_time(deadline).await,
        }
    }

    async fn ask_for_time(&self, deadline: Instant) -> Result<ServiceTime> {
        let request = self
            .connection
            .ask(deadline, |client| client.describe_table().table_name(&*self.name).send());
        request.await.map_err(Failure::of_read)?;
        self.connection.service_time()
    }

    /// The service's time, as far as an answer tells.
    pub(crate) async fn server_time(&self, deadline: Instant) -> Result<ServerTime> {
        let time = self.ask_for_time(deadline).await?;
        Ok(ServerTime { at: time.earliest, uncertainty: time.width() })
    }
}

fn keyed_value(mut item: Item, now: ServiceTime) -> Result<(Key, Option<Bytes>)> {
    let key = Key { pkey: layout::take_pkey(&mut item)?, ccols: layout::take_ccols(&mut item)? };
    Ok((key, layout::live_value(Some(item), now)?))
}

/// The row of an item; `None` if it has expired or is the one at the end of the range.
fn live_row(mut item: Item, range: &Range, now: ServiceTime) -> Result<Option<ExpiringRow>> {
    let ccols = layout::take_ccols(&mut item)?;
    let stored = Stored::read(&mut item)?;
    if range.end.as_ref() == Some(&ccols) || !stored.is_live(now) {
        return Ok(None);
    }
    let ttl = stored.ttl(now);
    Ok(Some(ExpiringRow { ccols, value: stored.value, ttl }))
}

#[cfg(test)]
mod tests;
