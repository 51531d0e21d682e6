//! The settings of the servers that this driver relies on.
//!
//! Each server of Cassandra 4.0 and later shows its settings in the table `system_views.settings`.
//! Servers may have different settings, so the driver asks each one. The names and the defaults are
//! those of `Config.java` and `GuardrailsOptions.java` in the sources of Apache Cassandra 4.1.10
//! and 5.0.5.

mod problem;

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use clock::Clock;
use futures::future::{join_all, try_join_all};
use istorage::{Error, ErrorKind, Result};
use scylla::{client::session::Session, cluster::Node};
use tracing::warn;

pub use self::problem::SettingProblem;
use crate::{one_server::rows, routing::address};

/// How long a server may take to tell its settings when a session is set up. After that it counts
/// as a server that does not tell them, so a server that hangs does not keep a node from starting.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

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

/// The settings of one server that this driver relies on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    server: SocketAddr,
    /// The values that are set; `None` if the server does not tell its settings.
    values: Option<BTreeMap<String, String>>,
    /// Whether the driver logs in as a user. Guardrails may apply to users.
    logs_in: bool,
}

impl ServerSettings {
    /// Returns the address of the server.
    pub fn server(&self) -> SocketAddr {
        self.server
    }

    /// Returns whether the server tells its settings. ScyllaDB, and Cassandra before 4.0, do not.
    pub fn are_known(&self) -> bool {
        self.values.is_some()
    }

    /// Returns when the server syncs its commit log.
    pub fn commit_log_sync(&self) -> CommitLogSync {
        match self.value("commitlog_sync") {
            Some("batch" | "group") => CommitLogSync::BeforeAnswers,
            Some("periodic") => CommitLogSync::AfterAnswers,
            _ => CommitLogSync::Unknown,
        }
    }

    /// Returns the settings that may make the storage break a promise. For a server that does not
    /// tell its settings, the list is empty.
    pub fn problems(&self) -> Vec<SettingProblem> {
        let of_values = |values| problem::of_values(values, self.logs_in);
        self.values.as_ref().map(of_values).unwrap_or_default()
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.values.as_ref()?.get(name).map(String::as_str)
    }
}

/// Asks each connected server.
pub(crate) async fn of_servers(session: &Session, logs_in: bool) -> Result<Vec<ServerSettings>> {
    try_join_all(connected(session).iter().map(|node| of_server(session, node, logs_in))).await
}

/// Checks the settings of each connected server when a session is set up. Logs the settings that
/// may make the storage break a promise.
///
/// # Errors
/// `Invalid` if no node can work with the settings of a server.
pub(crate) async fn check(session: &Session, clock: &Clock, logs_in: bool) -> Result<()> {
    let nodes = connected(session);
    let deadline = clock.now() + ANSWER_TIMEOUT;
    let ask = async |node| {
        let asked = clock.timeout_at(deadline, of_server(session, node, logs_in)).await;
        let unknown = || ServerSettings { server: address(node), values: None, logs_in };
        asked.ok().and_then(Result::ok).unwrap_or_else(unknown)
    };
    for settings in join_all(nodes.iter().map(ask)).await {
        let server = settings.server;
        if !settings.are_known() {
            warn!(%server, "server settings not known");
        }
        for SettingProblem { setting, what, is_fatal } in settings.problems() {
            if is_fatal {
                return Err(Error::invalid(format!("server {server} of Cassandra: {what}")));
            }
            warn!(%server, setting, problem = what, "unsafe server setting");
        }
    }
    Ok(())
}

fn connected(session: &Session) -> Vec<Arc<Node>> {
    let state = session.get_cluster_state();
    state.get_nodes_info().iter().filter(|node| node.is_connected()).cloned().collect()
}

async fn of_server(session: &Session, node: &Arc<Node>, logs_in: bool) -> Result<ServerSettings> {
    let names = problem::NAMES.map(|name| format!("'{name}'")).join(", ");
    let text = format!(
        "SELECT name, value FROM system_views.settings WHERE name IN ('commitlog_sync', {names})"
    );
    let values = match rows::<(String, Option<String>)>(session, node, text).await {
        Ok(values) => Some(values),
        // Other products, and other versions, do not have this table.
        Err(error) if error.kind() == ErrorKind::Invalid => None,
        Err(error) => return Err(error),
    };
    let are_set = |values: Vec<(String, Option<String>)>| {
        values.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    };
    Ok(ServerSettings { server: address(node), values: values.map(are_set), logs_in })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(values: Option<BTreeMap<String, String>>) -> ServerSettings {
        ServerSettings { server: ([10, 0, 0, 1], 9042).into(), values, logs_in: true }
    }

    #[test]
    fn a_value_that_is_not_known_is_not_taken_for_a_known_one() {
        let of = |value: Option<&str>| {
            let values =
                value.map(|value| [("commitlog_sync".to_owned(), value.to_owned())].into());
            settings(values).commit_log_sync()
        };
        assert_eq!(of(Some("batch")), CommitLogSync::BeforeAnswers);
        assert_eq!(of(Some("group")), CommitLogSync::BeforeAnswers);
        assert_eq!(of(Some("periodic")), CommitLogSync::AfterAnswers);
        assert_eq!(of(Some("never")), CommitLogSync::Unknown);
        assert_eq!(of(None), CommitLogSync::Unknown);
    }

    #[test]
    fn nothing_is_claimed_about_a_server_that_does_not_tell_its_settings() {
        let settings = settings(None);
        assert!(!settings.are_known());
        assert_eq!(settings.problems(), []);
    }
}
