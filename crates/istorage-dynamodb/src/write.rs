//! Plain and ordered writes, and conditional writes of one row.
//!
//! Invariant: a write is sent again only after a definite answer that it did nothing.

use std::error::Error as StdError;

use aws_sdk_dynamodb::{
    error::{ProvideErrorMetadata, SdkError},
    operation::{delete_item::DeleteItemError, put_item::PutItemError},
    types::{PutRequest, ReturnValuesOnConditionCheckFailure, WriteRequest},
};
use bytes::Bytes;
use clock::Instant;
use futures::{TryStreamExt, stream};
use istorage::{Conditional, Conflict, Error, OrderedPut, Outcome, Put};

use crate::{
    errors::RequestFailure,
    layout::{self, Expression, Item, ItemContent},
    read::SIDE_BY_SIDE,
    table::KeyspaceTable,
    table_leases::{TableLeases, refused_without_item},
};

type Result<T, E = Error> = std::result::Result<T, E>;

/// The most rows that DynamoDB takes in one batch. A batch of the largest items stays below
/// DynamoDB's limit of 16 MB.
const ROWS_MAX: usize = 25;

/// Why a request with a condition failed.
enum Refusal {
    /// The condition did not hold. Has the item that was there.
    Condition(Option<Item>),
    Failure(RequestFailure),
}

impl KeyspaceTable {
    pub(crate) async fn put_batch(&self, rows: &[Put], deadline: Instant) -> Result<()> {
        if let [put] = rows {
            return self.put_one(put, deadline).await;
        }
        stream::iter(rows.chunks(ROWS_MAX).map(Ok))
            .try_for_each_concurrent(SIDE_BY_SIDE, |rows| self.put_chunk(rows, deadline))
            .await
    }

    async fn put_one(&self, put: &Put, deadline: Instant) -> Result<()> {
        let mut backoff = self.connection.backoff(deadline);
        loop {
            let item = layout::item(&put.key.pkey, &put.key.ccols, &put.value);
            let request = self.connection.send(|client| {
                client.put_item().table_name(&*self.name).set_item(Some(item)).send()
            });
            let Err(error) = request.await else { return Ok(()) };
            backoff.wait_to_resend(self.failure_of(error)).await?;
        }
    }

    async fn put_chunk(&self, rows: &[Put], deadline: Instant) -> Result<()> {
        let mut left = rows.iter().map(put_request).collect::<Result<Vec<_>>>()?;
        let mut backoff = self.connection.backoff(deadline);
        loop {
            let request = self.connection.send(|client| {
                client.batch_write_item().request_items(&*self.name, left.clone()).send()
            });
            let failure = match request.await {
                Ok(answer) => {
                    let unprocessed = answer.unprocessed_items.into_iter().flatten();
                    left = unprocessed.flat_map(|(_, rows)| rows).collect();
                    if left.is_empty() {
                        return Ok(());
                    }
                    RequestFailure::unfinished("not all rows were written")
                }
                Err(error) => self.failure_of(error),
            };
            backoff.wait_to_resend(failure).await?;
        }
    }

    /// Writes each row in its own request.
    pub(crate) async fn put_ordered(&self, rows: &[OrderedPut], deadline: Instant) -> Result<()> {
        stream::iter(rows.iter().map(Ok))
            .try_for_each_concurrent(SIDE_BY_SIDE, |put| self.put_one_ordered(put, deadline))
            .await
    }

    async fn put_one_ordered(&self, put: &OrderedPut, deadline: Instant) -> Result<()> {
        let mut backoff = self.connection.backoff(deadline);
        loop {
            let item = layout::ordered_item(put, self.time(deadline).await?);
            let condition = layout::order_condition(put, &item);
            match self.put_if(item, condition).await {
                Ok(()) => return Ok(()),
                Err(Refusal::Condition(there)) => return check_superseded(put, there),
                Err(Refusal::Failure(failure)) => backoff.wait_to_resend(failure).await?,
            }
        }
    }

    /// A conditional write of one row.
    pub(crate) async fn write_one_if(
        &self,
        pkey: &Bytes,
        op: &Conditional,
        deadline: Instant,
    ) -> Result<Outcome> {
        let (leases, mut backoff) = (TableLeases(self), self.connection.backoff(deadline));
        loop {
            let terms = leases.attempt_terms(pkey, op);
            let condition = layout::condition(op, terms);
            let answer = match layout::written_item(pkey, op, terms) {
                Some(item) => self.put_if(item, condition).await,
                None => self.delete_if(layout::key(pkey, op.ccols()), condition).await,
            };
            match answer {
                Ok(()) => {
                    leases.record_applied(pkey, op, terms);
                    return Ok(Outcome::Applied);
                }
                Err(Refusal::Condition(item)) => {
                    let actual = leases.present_value(pkey, op, item, terms)?;
                    return Ok(Outcome::NotApplied(vec![Conflict { op: 0, actual }]));
                }
                Err(Refusal::Failure(failure)) => backoff.wait_to_resend(failure).await?,
            }
        }
    }

    async fn put_if(&self, item: Item, condition: Expression) -> Result<(), Refusal> {
        let request = self.connection.send(|client| {
            client
                .put_item()
                .table_name(&*self.name)
                .set_item(Some(item))
                .condition_expression(condition.text)
                .set_expression_attribute_values(Some(condition.values))
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld,
                )
                .send()
        });
        let present_item = |error: &PutItemError| match error {
            PutItemError::ConditionalCheckFailedException(failed) => Some(failed.item.clone()),
            _ => None,
        };
        request.await.map(drop).map_err(|error| self.refusal(error, present_item))
    }

    async fn delete_if(&self, key: Item, condition: Expression) -> Result<(), Refusal> {
        let request = self.connection.send(|client| {
            client
                .delete_item()
                .table_name(&*self.name)
                .set_key(Some(key))
                .condition_expression(condition.text)
                .set_expression_attribute_values(Some(condition.values))
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld,
                )
                .send()
        });
        let present_item = |error: &DeleteItemError| match error {
            DeleteItemError::ConditionalCheckFailedException(failed) => Some(failed.item.clone()),
            _ => None,
        };
        request.await.map(drop).map_err(|error| self.refusal(error, present_item))
    }

    /// What an error means for a request with a condition. `present_item` returns the item if the
    /// condition did not hold.
    fn refusal<E>(
        &self,
        error: SdkError<E>,
        present_item: impl FnOnce(&E) -> Option<Option<Item>>,
    ) -> Refusal
    where
        E: StdError + ProvideErrorMetadata + Send + Sync + 'static,
    {
        match error.as_service_error().and_then(present_item) {
            Some(item) => Refusal::Condition(item),
            None => Refusal::Failure(self.failure_of(error)),
        }
    }
}

/// Checks an ordered write that was refused because of the present row. The write succeeds if the
/// present row has no order, a higher order, or the same order and value.
///
/// # Errors
/// `Invalid` if the present row has the same order and another value. `Unavailable` if the service
/// did not show the item: the write is not superseded for sure.
pub(crate) fn check_superseded(put: &OrderedPut, there: Option<Item>) -> Result<()> {
    let mut item = there.ok_or_else(refused_without_item)?;
    let there = ItemContent::read(&mut item)?;
    match there.rank {
        Some(rank) if rank == put.order.rank() && there.value != put.value => Err(Error::invalid(
            format!("{:?} was written with order {rank} and another value", put.key),
        )),
        _ => Ok(()),
    }
}

fn put_request(put: &Put) -> Result<WriteRequest> {
    let item = layout::item(&put.key.pkey, &put.key.ccols, &put.value);
    let request = PutRequest::builder().set_item(Some(item)).build();
    let request =
        request.map_err(|error| Error::invalid("a write is incomplete").with_source(error))?;
    Ok(WriteRequest::builder().put_request(request).build())
}

#[cfg(test)]
mod tests;
