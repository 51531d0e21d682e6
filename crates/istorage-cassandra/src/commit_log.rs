//! When the servers sync their commit logs.

use std::{net::SocketAddr, sync::Arc};

use futures::future::try_join_all;
use istorage::{ErrorKind, Result};
use scylla::{client::session::Session, cluster::Node};

use crate::{one_server::rows, routing::address};

/// When a server syncs its commit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommitLogSync {
    /// Before it acknowledges a write (`batch`, `group`).
    BeforeAnswers,
    /// Now and then (`periodic`). A server that is killed, or loses its power, may lose writes that
    /// it acknowledged.
    AfterAnswers,
    /// The server does not tell.
    Unknown,
}

/// Asks each server that is connected.
pub(crate) async fn of_servers(session: &Session) -> Result<Vec<(SocketAddr, CommitLogSync)>> {
    let state = session.get_cluster_state();
    let connected = state.get_nodes_info().iter().filter(|node| node.is_connected());
    try_join_all(connected.map(|node| of_server(session, node))).await
}

async fn of_server(session: &Session, node: &Arc<Node>) -> Result<(SocketAddr, CommitLogSync)> {
    let text = "SELECT value FROM system_views.settings WHERE name = 'commitlog_sync'";
    let values = match rows::<(Option<String>,)>(session, node, text.to_owned()).await {
        Ok(values) => values,
        // Other products, and other versions, do not have this table.
        Err(error) if error.kind() == ErrorKind::Invalid => Vec::new(),
        Err(error) => return Err(error),
    };
    let value = values.into_iter().next().and_then(|(value,)| value);
    Ok((address(node), of_value(value.as_deref())))
}

fn of_value(value: Option<&str>) -> CommitLogSync {
    match value {
        Some("batch" | "group") => CommitLogSync::BeforeAnswers,
        Some("periodic") => CommitLogSync::AfterAnswers,
        _ => CommitLogSync::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_not_known_is_not_taken_for_a_known_one() {
        assert_eq!(of_value(Some("batch")), CommitLogSync::BeforeAnswers);
        assert_eq!(of_value(Some("group")), CommitLogSync::BeforeAnswers);
        assert_eq!(of_value(Some("periodic")), CommitLogSync::AfterAnswers);
        assert_eq!(of_value(Some("never")), CommitLogSync::Unknown);
        assert_eq!(of_value(None), CommitLogSync::Unknown);
    }
}
