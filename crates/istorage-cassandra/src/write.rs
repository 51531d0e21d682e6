//! Writes. Each request is sent once; whatever it says or does not say goes to the caller.

use std::collections::HashMap;

use bytes::Bytes;
use futures::{TryStreamExt, stream};
use istorage::{BatchLimits, Conditional, Error, Key, OrderedPut, Outcome, Put, Result, decide};
use scylla::{
    client::session::Session,
    response::query_result::QueryResult,
    serialize::{
        SerializationError,
        row::{RowSerializationContext, SerializeRow},
        writers::RowWriter,
    },
    statement::{
        batch::{Batch, BatchType},
        prepared::PreparedStatement,
    },
};

use crate::{
    errors::Request,
    layout::Statements,
    limits::{ORDERED, PLAIN, SIDE_BY_SIDE},
    ttl,
};

pub(crate) async fn put_batch(
    session: &Session,
    statements: &Statements,
    rows: &[Put],
) -> Result<()> {
    let writes = rows.iter().map(|put| Write { key: &put.key, value: &put.value, order: None });
    write_all(session, &statements.put, writes.collect(), PLAIN).await
}

pub(crate) async fn put_ordered(
    session: &Session,
    statements: &Statements,
    rows: &[OrderedPut],
) -> Result<()> {
    let writes = rows.iter().map(|put| {
        let timestamp = i64::try_from(put.order.get()).unwrap_or(i64::MAX);
        Write { key: &put.key, value: &put.value, order: Some((timestamp, ttl::seconds(put.ttl))) }
    });
    write_all(session, &statements.put_ordered, writes.collect(), ORDERED).await
}

/// A plain or an ordered write of one row.
struct Write<'a> {
    key: &'a Key,
    value: &'a Bytes,
    /// The timestamp and the seconds to live of an ordered one.
    order: Option<(i64, i32)>,
}

impl Write<'_> {
    fn bytes(&self) -> usize {
        self.key.pkey.len() + self.key.ccols.len() + self.value.len()
    }
}

impl SerializeRow for Write<'_> {
    fn serialize(
        &self,
        ctx: &RowSerializationContext<'_>,
        writer: &mut RowWriter<'_>,
    ) -> std::result::Result<(), SerializationError> {
        let (value, pkey, ccols) = (&self.value[..], &self.key.pkey[..], &self.key.ccols[..]);
        match self.order {
            None => (value, pkey, ccols).serialize(ctx, writer),
            Some((timestamp, seconds)) => {
                (timestamp, seconds, value, pkey, ccols).serialize(ctx, writer)
            }
        }
    }

    fn is_empty(&self) -> bool {
        false
    }
}

/// Writes rows of any partitions; those of one partition together, as far as `limits` allow.
async fn write_all(
    session: &Session,
    statement: &PreparedStatement,
    writes: Vec<Write<'_>>,
    limits: BatchLimits,
) -> Result<()> {
    if let [write] = &writes[..] {
        return send(session, statement, std::slice::from_ref(write)).await;
    }
    let mut partitions: HashMap<&[u8], Vec<Write<'_>>> = HashMap::new();
    for write in writes {
        partitions.entry(&write.key.pkey).or_default().push(write);
    }
    let requests = partitions.into_values().flat_map(|writes| chunks(writes, limits));
    let requests = stream::iter(requests.map(Ok));
    requests
        .try_for_each_concurrent(SIDE_BY_SIDE, |chunk| async move {
            send(session, statement, &chunk).await
        })
        .await
}

/// One request. Several rows of a partition make one mutation, so all of them are written or none.
async fn send(
    session: &Session,
    statement: &PreparedStatement,
    writes: &[Write<'_>],
) -> Result<()> {
    let result = match writes {
        [write] => session.execute_unpaged(statement, write).await,
        _ => session.batch(&batch(writes.iter().map(|_| statement)), writes).await,
    };
    result.map(drop).map_err(|error| Request::Plain.failed(error))
}

/// The writes of a partition in their order, in as few parts as the limits allow.
fn chunks(writes: Vec<Write<'_>>, limits: BatchLimits) -> Vec<Vec<Write<'_>>> {
    let mut chunks = Vec::new();
    let mut chunk: Vec<Write<'_>> = Vec::new();
    let mut bytes = 0;
    for write in writes {
        if !chunk.is_empty() && (chunk.len() == limits.rows || bytes + write.bytes() > limits.bytes)
        {
            chunks.push(std::mem::take(&mut chunk));
            bytes = 0;
        }
        bytes += write.bytes();
        chunk.push(write);
    }
    chunks.push(chunk);
    chunks
}

/// A batch of one partition needs no log to be atomic.
fn batch<'a>(statements: impl Iterator<Item = &'a PreparedStatement>) -> Batch {
    let statements = statements.map(|statement| statement.clone().into()).collect();
    Batch::new_with_statements(BatchType::Unlogged, statements)
}

pub(crate) async fn write_if(
    session: &Session,
    statements: &Statements,
    pkey: &Bytes,
    ops: &[Conditional],
) -> Result<Outcome> {
    let statement = |op: &Conditional| match op {
        Conditional::Insert { .. } | Conditional::Swap { .. } => &statements.write_if,
        Conditional::Delete { .. } => &statements.delete_if,
    };
    let result = match ops {
        [op] => session.execute_unpaged(statement(op), ConditionalWrite { pkey, op }).await,
        _ => {
            let values: Vec<_> = ops.iter().map(|op| ConditionalWrite { pkey, op }).collect();
            let mut batch = batch(ops.iter().map(statement));
            batch.set_load_balancing_policy(
                statements.write_if.get_load_balancing_policy().cloned(),
            );
            session.batch(&batch, values).await
        }
    };
    outcome(result.map_err(|error| Request::Conditional.failed(error))?, ops)
}

/// A conditional write of one row.
struct ConditionalWrite<'a> {
    pkey: &'a Bytes,
    op: &'a Conditional,
}

impl SerializeRow for ConditionalWrite<'_> {
    fn serialize(
        &self,
        ctx: &RowSerializationContext<'_>,
        writer: &mut RowWriter<'_>,
    ) -> std::result::Result<(), SerializationError> {
        let (pkey, ccols) = (&self.pkey[..], &self.op.ccols()[..]);
        let expected = self.op.expected().map(|value| &value[..]);
        match self.op.written() {
            None => (pkey, ccols, expected).serialize(ctx, writer),
            Some(value) => (ttl::seconds(self.op.ttl()), &value[..], pkey, ccols, expected)
                .serialize(ctx, writer),
        }
    }

    fn is_empty(&self) -> bool {
        false
    }
}

/// What the answer to a conditional write says. See [`layout`](crate::layout) for what it has in it.
fn outcome(result: QueryResult, ops: &[Conditional]) -> Result<Outcome> {
    let strange = |error| Request::Conditional.strange_answer(error);
    let rows =
        result.into_rows_result().map_err(|error| Request::Conditional.strange_answer(error))?;
    let mut there: HashMap<Bytes, Option<Bytes>> = HashMap::new();
    let applied = match rows.column_specs().len() {
        1 => rows.first_row::<(bool,)>().map_err(strange)?.0,
        2 => {
            let (applied, value) = rows.first_row::<(bool, Option<Bytes>)>().map_err(strange)?;
            there.extend(ops.iter().map(|op| (op.ccols().clone(), value.clone())));
            applied
        }
        _ => {
            type Row = (bool, Option<Bytes>, Option<Bytes>, Option<Bytes>);
            let mut applied = false;
            let rows =
                rows.rows::<Row>().map_err(|error| Request::Conditional.strange_answer(error))?;
            for row in rows {
                let (row_applied, _pkey, ccols, value) =
                    row.map_err(|error| Request::Conditional.strange_answer(error))?;
                applied = row_applied;
                there.extend(ccols.map(|ccols| (ccols, value)));
            }
            applied
        }
    };
    if applied {
        return Ok(Outcome::Applied);
    }
    match decide(ops, |_, op| Ok::<_, Error>(there.get(op.ccols()).cloned().flatten()))? {
        Outcome::Applied => Err(Error::corrupt(
            "Cassandra did not apply a conditional write although by its own answer every condition holds",
        )),
        refused @ Outcome::NotApplied(_) => Ok(refused),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(rows: &[(usize, usize)], limits: BatchLimits) -> Vec<usize> {
        let key = Key::new("p", "");
        let values: Vec<Bytes> = rows
            .iter()
            .flat_map(|(count, bytes)| vec![Bytes::from(vec![0; *bytes]); *count])
            .collect();
        let writes = values.iter().map(|value| Write { key: &key, value, order: None }).collect();
        chunks(writes, limits).iter().map(Vec::len).collect()
    }

    #[test]
    fn rows_stay_together_up_to_the_limits() {
        let limits = BatchLimits { rows: 4, bytes: 100 };
        assert_eq!(sizes(&[(4, 1)], limits), [4]);
        assert_eq!(sizes(&[(9, 1)], limits), [4, 4, 1]);
        // Each has one more byte for its key.
        assert_eq!(sizes(&[(2, 49), (1, 0)], limits), [2, 1]);
        assert_eq!(sizes(&[(1, 5), (1, 500), (1, 5)], limits), [1, 1, 1]);
    }
}
