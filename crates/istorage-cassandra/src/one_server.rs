//! Queries to one server.

use std::sync::Arc;

use istorage::Result;
use scylla::{
    client::session::Session,
    cluster::Node,
    deserialize::row::DeserializeRow,
    policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy},
    response::query_result::QueryRowsResult,
    statement::Statement,
};

use crate::errors::RequestKind;

/// Sends a query to one server, and returns its rows.
pub(crate) async fn rows<R>(session: &Session, node: &Arc<Node>, text: String) -> Result<Vec<R>>
where
    R: for<'frame> DeserializeRow<'frame, 'frame>,
{
    let result = query(session, node, text).await?;
    let rows =
        result.rows::<R>().map_err(|error| RequestKind::Repeatable.unexpected_answer(error))?;
    rows.map(|row| row.map_err(|error| RequestKind::Repeatable.unexpected_answer(error))).collect()
}

/// Sends a query to one server.
pub(crate) async fn query(
    session: &Session,
    node: &Arc<Node>,
    text: String,
) -> Result<QueryRowsResult> {
    let mut statement = Statement::new(text);
    let node = NodeIdentifier::Node(Arc::clone(node));
    statement.set_load_balancing_policy(Some(SingleTargetLoadBalancingPolicy::new(node, None)));
    let result = session.query_unpaged(statement, ()).await;
    let result = result.map_err(|error| RequestKind::Repeatable.failed(error))?;
    result.into_rows_result().map_err(|error| RequestKind::Repeatable.unexpected_answer(error))
}
