//! Suspects: servers that did not answer, and that requests avoid for a while.
//!
//! A server that hangs keeps its connections open, so the client goes on choosing the server until
//! the keepalive gives up these connections. A lease may not have that much time. So every request
//! notes its server. If a request has no answer at its deadline, the server becomes a suspect,
//! unless the server has answered another request meanwhile. [`Routing`](crate::routing::Routing)
//! avoids suspects.
//!
//! A server that misses a deadline but answers other requests does not become a suspect.
//! Conditional writes of one row delay each other, and the slowest can time out on a healthy
//! server. If clients avoided such a server, they would use different coordinators, and the writes
//! would delay each other even more.
//!
//! The caller drops a request at its deadline, so only a guard sees the end of the request: see
//! [`Suspects::watch`].

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use base::locks::lock;
use clock::{Clock, Instant};
use scylla::errors::ExecutionError;
use tracing::warn;

use crate::errors;

/// How long requests avoid a suspect. If the server still hangs afterwards, the next attempt costs
/// one deadline.
pub(crate) const AVOIDED_FOR: Duration = Duration::from_secs(10);

/// The suspects of one session, each with the time of its last failure.
#[derive(Debug)]
pub(crate) struct Suspects {
    clock: Clock,
    since: Mutex<HashMap<SocketAddr, Instant>>,
    /// The time of the last answer of each server.
    answered: Mutex<HashMap<SocketAddr, Instant>>,
}

/// The last server of a request.
type LastServer = Arc<Mutex<Option<SocketAddr>>>;

tokio::task_local! {
    /// The server of the request that is polled now.
    static LAST_SERVER: LastServer;
}

/// Notes that this server gets the request that is polled now.
pub(crate) fn record_server(server: SocketAddr) {
    // A request outside of [`Suspects::watch`] notes nothing.
    let _ = LAST_SERVER.try_with(|last_server| *lock(last_server) = Some(server));
}

impl Suspects {
    pub(crate) fn new(clock: Clock) -> Suspects {
        Suspects { clock, since: Mutex::default(), answered: Mutex::default() }
    }

    /// Awaits the answer to one request. The server becomes a suspect if the request is dropped at
    /// `deadline` or later, or if the answer says that another server may do better.
    ///
    /// A server that waited in vain for its peers may be the one that the peers cannot reach. So
    /// such an answer counts as a request that was dropped at its deadline.
    pub(crate) async fn watch<T>(
        &self,
        deadline: Instant,
        request: impl Future<Output = Result<T, ExecutionError>>,
    ) -> Result<T, ExecutionError> {
        let (sent, last_server) = (self.clock.now(), LastServer::default());
        let mut pending =
            PendingRequest { suspects: self, sent, deadline: Some(deadline), last_server };
        let answer = LAST_SERVER.scope(Arc::clone(&pending.last_server), request).await;
        pending.deadline = None;
        if answer.as_ref().is_err_and(errors::is_fault_of_server) {
            pending.suspect_server("the server cannot serve a request");
        } else if answer.as_ref().is_err_and(errors::is_timeout_of_peers) {
            if pending.is_silent() {
                pending.suspect_server("the peers of the server did not answer in time");
            }
        } else if let Some(server) = *lock(&pending.last_server) {
            lock(&self.answered).insert(server, self.clock.now());
        }
        answer
    }

    /// When the server became a suspect. `None` if the server is not a suspect, or no longer one.
    pub(crate) fn since(&self, server: SocketAddr) -> Option<Instant> {
        let since = *lock(&self.since).get(&server)?;
        (self.clock.now() < since + AVOIDED_FOR).then_some(since)
    }

    /// Whether the server has answered a request since this time.
    fn has_answered_since(&self, server: SocketAddr, time: Instant) -> bool {
        lock(&self.answered).get(&server).is_some_and(|answered| *answered > time)
    }

    fn add(&self, server: SocketAddr, reason: &str) {
        let is_new = self.since(server).is_none();
        lock(&self.since).insert(server, self.clock.now());
        if is_new {
            warn!(%server, reason, avoided_for = ?AVOIDED_FOR, "Cassandra server avoided");
        }
    }
}

/// The server to ask: the first candidate that is not a suspect, or else the candidate that has
/// been a suspect the longest.
pub(crate) fn first_unsuspected<T>(
    candidates: impl IntoIterator<Item = T>,
    since: impl Fn(&T) -> Option<Instant>,
) -> Option<T> {
    let mut best: Option<(Instant, T)> = None;
    for candidate in candidates {
        let Some(since) = since(&candidate) else { return Some(candidate) };
        if best.as_ref().is_none_or(|(longest, _)| since < *longest) {
            best = Some((since, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// A request that has no answer yet.
struct PendingRequest<'a> {
    suspects: &'a Suspects,
    sent: Instant,
    /// `None` once there is an answer.
    deadline: Option<Instant>,
    last_server: LastServer,
}

impl PendingRequest<'_> {
    /// Whether the server has served nothing since the request was sent.
    fn is_silent(&self) -> bool {
        let last_server = *lock(&self.last_server);
        last_server.is_some_and(|server| !self.suspects.has_answered_since(server, self.sent))
    }

    fn suspect_server(&self, reason: &str) {
        let last_server = *lock(&self.last_server);
        if let Some(server) = last_server {
            self.suspects.add(server, reason);
        }
    }
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        // A caller may drop a request before its deadline. Such a drop says nothing about the
        // server.
        let is_late = self.deadline.is_some_and(|deadline| self.suspects.clock.now() >= deadline);
        if is_late && self.is_silent() {
            self.suspect_server("no answer before the deadline");
        }
    }
}

#[cfg(test)]
mod tests;
