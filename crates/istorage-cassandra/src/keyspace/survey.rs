//! Asks the servers of the cluster for their views of a keyspace.

use std::sync::Arc;

use clock::{Clock, Instant};
use futures::future::join_all;
use istorage::{Error, ErrorKind, KeyspaceName, Result};
use scylla::{client::session::Session, cluster::Node};

use super::view::{KeyspaceView, usable_view};

/// The answers of the servers that can be reached.
#[derive(Default)]
pub(super) struct Survey {
    pub(super) found: Vec<KeyspaceView>,
    /// The number of servers in the cluster, or in the datacenter of the survey.
    pub(super) servers: usize,
    /// The addresses of the servers without a connection.
    pub(super) unconnected: Vec<String>,
    /// Why a connected server did not answer.
    pub(super) silent: Option<Error>,
}

impl Survey {
    /// The view of the keyspace that opening relies on. All servers that answered must have the
    /// same view. If servers `may_differ`, the most frequent view is enough. In both cases more
    /// than half of the servers must have this view.
    pub(super) fn verdict(&self, may_differ: bool) -> Option<KeyspaceView> {
        let count =
            |wanted: &KeyspaceView| self.found.iter().filter(|found| *found == wanted).count();
        let most = self.found.iter().max_by_key(|found| count(found))?;
        let is_enough = 2 * count(most) > self.servers;
        let is_agreed = may_differ || count(most) == self.found.len();
        (is_enough && is_agreed).then(|| most.clone())
    }

    /// The error that says why there is no verdict.
    pub(super) fn disagreement(self, name: &KeyspaceName) -> Error {
        let Survey { found, servers, unconnected, silent } = self;
        let shown = found.iter().filter(|found| matches!(found, KeyspaceView::Ready(_))).count();
        let mut why = format!(
            "{shown} of {servers} Cassandra servers show the keyspace `{name}`, and {} answered: more than half must agree",
            found.len()
        );
        if !unconnected.is_empty() {
            why = format!("{why}; not connected: {}", unconnected.join(", "));
        }
        match silent {
            Some(silent) => Error::unavailable(why).with_source(silent),
            None => Error::unavailable(why),
        }
    }
}

/// Asks every server that can be reached for its view of the keyspace, until a deadline. With
/// `datacenter`, it asks only the servers of that datacenter. A server that shows the table of this
/// driver must also answer a query of the table.
///
/// # Errors
/// `Corrupt` if the keyspace was not made by this driver.
pub(super) async fn survey(
    session: &Session,
    clock: &Clock,
    name: &KeyspaceName,
    datacenter: Option<&str>,
    deadline: Instant,
) -> Result<Survey> {
    let state = session.get_cluster_state();
    let is_meant = |node: &&Arc<Node>| {
        datacenter.is_none_or(|datacenter| node.datacenter.as_deref() == Some(datacenter))
    };
    // Until the client has read the list of servers, it knows only the contact points that
    // answered. They may be a small part of the cluster.
    if state.get_nodes_info().iter().all(|node| node.datacenter.is_none()) {
        let silent = Error::unavailable("the client does not know the servers of the cluster yet");
        return Ok(Survey { silent: Some(silent), ..Survey::default() });
    }
    let meant = state.get_nodes_info().iter().filter(is_meant);
    let (connected, unconnected): (Vec<&Arc<Node>>, Vec<&Arc<Node>>) =
        meant.partition(|node| node.is_connected());
    let ask = async |node: &Arc<Node>| {
        let asked = clock.timeout_at(deadline, usable_view(session, node, name));
        let server = node.address;
        let late = |_| Err(Error::unavailable(format!("{server} did not answer in time")));
        asked.await.unwrap_or_else(late)
    };
    let mut survey = Survey {
        found: Vec::new(),
        servers: connected.len() + unconnected.len(),
        unconnected: unconnected.iter().map(|node| node.address.to_string()).collect(),
        silent: None,
    };
    for answer in join_all(connected.into_iter().map(ask)).await {
        match answer {
            Ok(found) => survey.found.push(found),
            Err(error) if error.kind() == ErrorKind::Unavailable => survey.silent = Some(error),
            Err(error) => return Err(error),
        }
    }
    Ok(survey)
}

/// The view that all reachable servers share.
///
/// # Errors
/// `Unavailable` if a server does not answer, or while the views differ. Until `patient_until`,
/// also if a server is not connected.
pub(super) async fn common_view(
    session: &Session,
    clock: &Clock,
    name: &KeyspaceName,
    patient_until: Instant,
) -> Result<KeyspaceView> {
    let survey = survey(session, clock, name, None, Instant::FAR_FUTURE);
    let Survey { found, silent, unconnected, .. } = survey.await?;
    if let Some(silent) = silent {
        return Err(silent);
    }
    if !unconnected.is_empty() && clock.now() < patient_until {
        let servers = unconnected.join(", ");
        return Err(Error::unavailable(format!("no connection to Cassandra servers: {servers}")));
    }
    let mut found = found.into_iter();
    let first =
        found.next().ok_or_else(|| Error::unavailable("no Cassandra server is connected"))?;
    if found.all(|other| other == first) { Ok(first) } else { Err(differ(name)) }
}

pub(super) fn differ(name: &KeyspaceName) -> Error {
    Error::unavailable(format!(
        "the Cassandra servers do not agree about the keyspace `{name}` yet"
    ))
}

#[cfg(test)]
mod tests {
    use scylla::value::CqlValue;

    use super::*;

    /// A server that hung, or that its peers could not reach, kept every node from opening a
    /// keyspace, and so from taking over.
    #[test]
    fn a_keyspace_is_opened_when_more_than_half_of_the_servers_show_it() {
        let ours = |id: i32| KeyspaceView::Ready(CqlValue::Int(id));
        let verdict = |servers, found: &[KeyspaceView], may_differ| {
            let (found, unconnected) = (found.to_vec(), Vec::new());
            Survey { servers, found, unconnected, silent: None }.verdict(may_differ)
        };
        // All servers agree.
        assert_eq!(verdict(3, &[ours(1), ours(1), ours(1)], false), Some(ours(1)));
        assert_eq!(verdict(1, &[KeyspaceView::Missing], false), Some(KeyspaceView::Missing));
        // One server does not answer.
        assert_eq!(verdict(3, &[ours(1), ours(1)], false), Some(ours(1)));
        // Too few servers answer, or too few agree.
        for may_differ in [false, true] {
            assert_eq!(verdict(3, &[ours(1)], may_differ), None);
            assert_eq!(verdict(4, &[ours(1), ours(1)], may_differ), None);
            assert_eq!(verdict(3, &[], may_differ), None);
            assert_eq!(verdict(3, &[KeyspaceView::Missing, ours(1), ours(2)], may_differ), None);
        }
        // One server does not know the keyspace yet, or was cut off when the keyspace was created.
        let differ = [KeyspaceView::Missing, ours(1), ours(1)];
        assert_eq!(verdict(3, &differ, false), None);
        assert_eq!(verdict(3, &differ, true), Some(ours(1)));
    }

    /// Servers without a connection were not asked. A node that started while two of three servers
    /// were dead did not go on, and no message said why.
    #[test]
    fn a_node_that_waits_for_servers_names_those_that_are_not_connected() {
        let name = KeyspaceName::new("app_one").unwrap();
        let unconnected = vec!["127.0.0.2:9042".to_owned(), "127.0.0.3:9042".to_owned()];
        let found = vec![KeyspaceView::Ready(CqlValue::Int(1))];
        let why = Survey { servers: 3, found, unconnected, silent: None }.disagreement(&name);
        assert_eq!(why.kind(), ErrorKind::Unavailable, "they may come back");
        assert_eq!(
            why.to_string(),
            "1 of 3 Cassandra servers show the keyspace `app_one`, and 1 answered: more than half must agree; not \
             connected: 127.0.0.2:9042, 127.0.0.3:9042"
        );
        let silent = Some(Error::unavailable("127.0.0.2:9042 did not answer in time"));
        let survey = Survey { servers: 3, found: Vec::new(), unconnected: Vec::new(), silent };
        let text = format!("{:?}", survey.disagreement(&name));
        assert!(text.contains("0 of 3") && text.contains("did not answer in time"), "{text}");
        assert!(!text.contains("not connected"), "{text}");
    }
}
