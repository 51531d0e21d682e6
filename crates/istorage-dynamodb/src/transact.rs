//! Writes of several rows, all or nothing.
//!
//! Invariants: every attempt has its own token, so the service never takes two attempts for one.
//! The driver makes a new attempt only after a definite answer that the previous attempt did
//! nothing.

use aws_sdk_dynamodb::{
    error::{BuildError, SdkError},
    operation::transact_write_items::TransactWriteItemsError,
    types::{
        CancellationReason, Delete, Put, ReturnValuesOnConditionCheckFailure::AllOld,
        TransactWriteItem,
    },
};
use clock::{Clock, Instant};
use istorage::{AtomicBatch, Conflict, Error, Outcome};

use crate::{
    errors::RequestFailure,
    layout::{self, Expression, Item},
    lease::AttemptTerms,
    table::KeyspaceTable,
    table_leases::TableLeases,
    time::ServiceTime,
    write::check_superseded,
};

type Result<T, E = Error> = std::result::Result<T, E>;

/// The codes of the reasons in a cancelled transaction.
const NONE: &str = "None";
const CONDITION_FAILED: &str = "ConditionalCheckFailed";

/// Why a transaction was cancelled.
enum Verdict {
    /// Conditions of conditional rows did not hold.
    Lost(Vec<Conflict>),
    /// Only these ordered rows, given by their indexes, refused the transaction: they are
    /// superseded.
    Superseded(Vec<usize>),
    Failure(RequestFailure),
}

/// Writes all rows of a batch or none. The next attempt leaves out ordered rows that are
/// superseded, so it has fewer rows than the previous attempt.
pub(crate) async fn write_atomic(
    table: &KeyspaceTable,
    mut batch: AtomicBatch,
    deadline: Instant,
) -> Result<Outcome> {
    let (leases, mut backoff) = (TableLeases(table), table.connection.backoff(deadline));
    while batch != AtomicBatch::default() {
        let conditionals = batch.conditionals.iter();
        let terms: Vec<AttemptTerms> =
            conditionals.map(|(pkey, op)| leases.attempt_terms(pkey, op)).collect();
        let now = table.time(deadline).await?;
        let Err(error) = transact(table, &batch, &terms, now).await else {
            for ((pkey, op), terms) in batch.conditionals.iter().zip(terms) {
                leases.record_applied(pkey, op, terms);
            }
            break;
        };
        let verdict = match reasons(&error) {
            Some(reasons) => judge(table, &batch, reasons, &terms)?,
            None => Verdict::Failure(table.failure_of(error)),
        };
        match verdict {
            Verdict::Lost(conflicts) => return Ok(Outcome::NotApplied(conflicts)),
            Verdict::Superseded(superseded) => leave_out(&mut batch, &superseded),
            Verdict::Failure(failure) => backoff.wait_to_resend(failure).await?,
        }
    }
    Ok(Outcome::Applied)
}

async fn transact(
    table: &KeyspaceTable,
    batch: &AtomicBatch,
    terms: &[AttemptTerms],
    now: ServiceTime,
) -> Result<(), SdkError<TransactWriteItemsError>> {
    let request = table.connection.send(|client| {
        let request = client.transact_write_items();
        async {
            let writes = writes(&table.name, batch, terms, now)?;
            let token = token(table.connection.clock());
            request.set_transact_items(Some(writes)).client_request_token(token).send().await
        }
    });
    request.await.map(drop)
}

fn judge(
    table: &KeyspaceTable,
    batch: &AtomicBatch,
    reasons: &[CancellationReason],
    terms: &[AttemptTerms],
) -> Result<Verdict> {
    let failed = |reason: &CancellationReason| reason.code() == Some(CONDITION_FAILED);
    let conditionals = batch.conditionals.len();
    let mut conflicts = Vec::new();
    for (op, reason) in reasons.iter().take(conditionals).enumerate().filter(|(_, r)| failed(r)) {
        let (pkey, conditional) = &batch.conditionals[op];
        let actual =
            TableLeases(table).present_value(pkey, conditional, reason.item.clone(), terms[op])?;
        conflicts.push(Conflict { op, actual });
    }
    if !conflicts.is_empty() {
        return Ok(Verdict::Lost(conflicts));
    }
    let others = reasons.iter().filter(|reason| !failed(reason));
    if let Some(other) = others.filter_map(CancellationReason::code).find(|code| *code != NONE) {
        return Ok(Verdict::Failure(RequestFailure::cancelled(other)));
    }
    let mut superseded = Vec::new();
    for (index, put) in batch.ordered.iter().enumerate() {
        if let Some(reason) = reasons.get(conditionals + index).filter(|reason| failed(reason)) {
            check_superseded(put, reason.item.clone())?;
            superseded.push(index);
        }
    }
    Ok(if superseded.is_empty() {
        Verdict::Failure(RequestFailure::cancelled("without a reason"))
    } else {
        Verdict::Superseded(superseded)
    })
}

/// A token that differs for every attempt of every node.
fn token(clock: &Clock) -> String {
    format!("{:016x}{:016x}", clock.random(), clock.random())
}

/// The writes of a transaction: first the conditional rows, then the ordered rows, then the plain
/// rows.
fn writes(
    table: &str,
    batch: &AtomicBatch,
    terms: &[AttemptTerms],
    now: ServiceTime,
) -> Result<Vec<TransactWriteItem>, BuildError> {
    let conditionals = batch.conditionals.iter().zip(terms).map(|((pkey, op), terms)| {
        let condition = layout::condition(op, *terms);
        match layout::written_item(pkey, op, *terms) {
            Some(item) => put(table, item, Some(condition)),
            None => delete(table, layout::key(pkey, op.ccols()), condition),
        }
    });
    let ordered = batch.ordered.iter().map(|ordered| {
        let item = layout::ordered_item(ordered, now);
        let condition = layout::order_condition(ordered, &item);
        put(table, item, Some(condition))
    });
    let puts = batch.puts.iter().map(|plain| {
        put(table, layout::item(&plain.key.pkey, &plain.key.ccols, &plain.value), None)
    });
    conditionals.chain(ordered).chain(puts).collect()
}

fn put(
    table: &str,
    item: Item,
    condition: Option<Expression>,
) -> Result<TransactWriteItem, BuildError> {
    let mut put = Put::builder().table_name(table).set_item(Some(item));
    if let Some(condition) = condition {
        put = put
            .condition_expression(condition.text)
            .set_expression_attribute_values(Some(condition.values))
            .return_values_on_condition_check_failure(AllOld);
    }
    Ok(TransactWriteItem::builder().put(put.build()?).build())
}

fn delete(table: &str, key: Item, condition: Expression) -> Result<TransactWriteItem, BuildError> {
    let delete = Delete::builder()
        .table_name(table)
        .set_key(Some(key))
        .condition_expression(condition.text)
        .set_expression_attribute_values(Some(condition.values))
        .return_values_on_condition_check_failure(AllOld);
    Ok(TransactWriteItem::builder().delete(delete.build()?).build())
}

/// The reasons of a cancelled transaction, one for each row.
fn reasons(error: &SdkError<TransactWriteItemsError>) -> Option<&[CancellationReason]> {
    match error.as_service_error()? {
        TransactWriteItemsError::TransactionCanceledException(cancelled) => {
            Some(cancelled.cancellation_reasons())
        }
        _ => None,
    }
}

fn leave_out(batch: &mut AtomicBatch, superseded: &[usize]) {
    let mut index = 0;
    batch.ordered.retain(|_| {
        let stays = !superseded.contains(&index);
        index += 1;
        stays
    });
}

#[cfg(test)]
mod tests;
