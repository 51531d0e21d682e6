//! Conditional writes.
//!
//! A conditional write is one statement or one batch. The server checks every condition of a batch
//! before it writes anything. Each conditional write is sent once, and is never repeated.

use std::collections::HashMap;

use bytes::Bytes;
use clock::Instant;
use istorage::{Conditional, Error, Outcome, Result, check_conditions};
use scylla::{
    response::query_result::QueryResult,
    serialize::{
        SerializationError,
        row::{RowSerializationContext, SerializeRow},
        writers::RowWriter,
    },
};

use crate::{errors::RequestKind, layout::Statements, session::SessionClient, ttl, write::batch};

pub(crate) async fn write_if(
    client: &SessionClient,
    statements: &Statements,
    pkey: &Bytes,
    ops: &[Conditional],
    deadline: Instant,
) -> Result<Outcome> {
    let statement = |op: &Conditional| match op {
        Conditional::Insert { ttl: None, .. } | Conditional::Swap { ttl: None, .. } => {
            &statements.write_if
        }
        Conditional::Insert { .. } | Conditional::Swap { .. } => &statements.write_if_for,
        Conditional::Delete { .. } => &statements.delete_if,
    };
    let result = match ops {
        [op] => client.execute(statement(op), ConditionalWrite { pkey, op }, deadline).await,
        _ => {
            let values: Vec<_> = ops.iter().map(|op| ConditionalWrite { pkey, op }).collect();
            let mut batch = batch(ops.iter().map(statement));
            batch.set_load_balancing_policy(
                statements.write_if.get_load_balancing_policy().cloned(),
            );
            client.batch(&batch, values, deadline).await
        }
    };
    outcome(result.map_err(|error| RequestKind::Conditional.failed(error))?, ops)
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
        match (self.op.written(), self.op.ttl()) {
            (None, _) => (pkey, ccols, expected).serialize(ctx, writer),
            (Some(value), None) => (&value[..], pkey, ccols, expected).serialize(ctx, writer),
            (Some(value), ttl) => {
                (ttl::seconds(ttl), &value[..], pkey, ccols, expected).serialize(ctx, writer)
            }
        }
    }

    fn is_empty(&self) -> bool {
        false
    }
}

fn unexpected(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    RequestKind::Conditional.unexpected_answer(error)
}

/// Reads the outcome from the answer to a conditional write. The module [`layout`](crate::layout)
/// describes the columns of the answer.
fn outcome(result: QueryResult, ops: &[Conditional]) -> Result<Outcome> {
    let rows = result.into_rows_result().map_err(unexpected)?;
    let mut there: HashMap<Bytes, Option<Bytes>> = HashMap::new();
    let applied = match rows.column_specs().len() {
        1 => rows.first_row::<(bool,)>().map_err(unexpected)?.0,
        2 => {
            let (applied, value) = rows.first_row::<(bool, Option<Bytes>)>().map_err(unexpected)?;
            there.extend(ops.iter().map(|op| (op.ccols().clone(), value.clone())));
            applied
        }
        _ => {
            type Row = (bool, Option<Bytes>, Option<Bytes>, Option<Bytes>);
            let mut applied = false;
            let rows = rows.rows::<Row>().map_err(unexpected)?;
            for row in rows {
                let (row_applied, _pkey, ccols, value) = row.map_err(unexpected)?;
                applied = row_applied;
                there.extend(ccols.map(|ccols| (ccols, value)));
            }
            applied
        }
    };
    if applied {
        return Ok(Outcome::Applied);
    }
    match check_conditions(ops, |_, op| Ok::<_, Error>(there.get(op.ccols()).cloned().flatten()))? {
        Outcome::Applied => Err(Error::corrupt(
            "Cassandra did not apply a conditional write, although every condition holds by its own answer",
        )),
        refused @ Outcome::NotApplied(_) => Ok(refused),
    }
}
