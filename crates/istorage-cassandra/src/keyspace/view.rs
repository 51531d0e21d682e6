//! The view that one server has of a keyspace.

use std::sync::Arc;

use istorage::{Error, KeyspaceName, Result};
use scylla::{client::session::Session, cluster::Node, value::CqlValue};

use crate::{
    layout::{COLUMNS, TABLE},
    one_server::{query, rows},
};

/// The view that one server has of a keyspace.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum KeyspaceView {
    Missing,
    /// A keyspace without tables, and the time of its creation. Either this driver began to create
    /// the keyspace and has not finished, or an operator prepared the keyspace with another
    /// replication.
    Empty(i64),
    /// The table of this driver, but the server does not know all its columns yet.
    Unfinished,
    /// A keyspace of this driver, with the identity of its table.
    Ready(CqlValue),
}

/// The view that a server has of the keyspace. A server that shows the table of this driver may not
/// know the table yet, so the server must also answer a query of the table.
///
/// The query names no storage partition, so the server answers without a replica. An earlier query
/// named a partition. Nodes could not open a keyspace while that partition had no quorum, and a
/// replica that hung delayed the answer. Each request on the storage finds out by itself whether
/// replicas answer.
pub(super) async fn usable_view(
    session: &Session,
    node: &Arc<Node>,
    name: &KeyspaceName,
) -> Result<KeyspaceView> {
    let found = schema_view(session, node, name).await?;
    if let KeyspaceView::Ready(_) = found {
        let text = format!("SELECT value FROM {name}.{TABLE} WHERE p_key IN ()");
        query(session, node, text).await?;
    }
    Ok(found)
}

/// The view that a server has of the keyspace, from the server's schema tables alone.
async fn schema_view(
    session: &Session,
    node: &Arc<Node>,
    name: &KeyspaceName,
) -> Result<KeyspaceView> {
    let text = format!(
        "SELECT writetime(durable_writes) FROM system_schema.keyspaces WHERE keyspace_name = '{name}'"
    );
    let Some((created_at,)) = rows::<(i64,)>(session, node, text).await?.pop() else {
        return Ok(KeyspaceView::Missing);
    };
    let text =
        format!("SELECT table_name, id FROM system_schema.tables WHERE keyspace_name = '{name}'");
    let mut tables = rows::<(String, CqlValue)>(session, node, text).await?;
    if let Some((other, _)) = tables.iter().find(|(table, _)| table != TABLE) {
        return Err(foreign(name, &format!("it has a table `{other}`")));
    }
    let Some((_, id)) = tables.pop() else {
        return Ok(KeyspaceView::Empty(created_at));
    };
    let text = format!(
        "SELECT column_name, kind, type, clustering_order FROM system_schema.columns WHERE keyspace_name = '{name}' AND \
         table_name = '{TABLE}'"
    );
    let columns = rows::<(String, String, String, String)>(session, node, text).await?;
    if !columns.iter().all(|column| COLUMNS.contains(&strs(column))) {
        return Err(foreign(name, &format!("its table `{TABLE}` has other columns")));
    }
    if columns.len() < COLUMNS.len() {
        return Ok(KeyspaceView::Unfinished);
    }
    Ok(KeyspaceView::Ready(id))
}

fn strs((name, kind, r#type, order): &(String, String, String, String)) -> [&str; 4] {
    [name, kind, r#type, order]
}

fn foreign(name: &KeyspaceName, why: &str) -> Error {
    Error::corrupt(format!(
        "the keyspace `{name}` was not made by this program, use another keyspace: {why}"
    ))
}
