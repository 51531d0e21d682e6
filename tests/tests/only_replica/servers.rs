//! Three servers, and the choice of those that answer.

use std::{future::pending, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use clock::Clock;
use istorage::{Key, KeyspaceName, StorageDriver};
use scylla::{
    client::{session::Session, session_builder::SessionBuilder},
    policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy},
    statement::{Consistency, Statement},
};
use tck::storage::Subject;
use vvm_tests::{
    processes::{KilledServer, SuspendedProcesses},
    subjects::Cassandra,
};

use crate::{PATIENCE, soon};

/// A server of `cargo xtask up` acknowledges a write before it is in the file of its commit log. A
/// server that is killed after this time has the write when it is back.
const COMMIT_LOG: Duration = Duration::from_secs(2);

/// After this time (`write_request_timeout` of the servers) a server keeps a write for a peer that
/// has not answered, as a hint. The first server is killed before.
const NO_HINT_YET: Duration = Duration::from_secs(12);

/// The three servers.
pub(crate) struct Servers {
    addresses: Vec<String>,
}

impl Servers {
    pub(crate) fn at(addresses: &str) -> Servers {
        Servers { addresses: addresses.split(',').map(str::to_owned).collect() }
    }

    /// A client with connections of its own.
    pub(crate) async fn connect(&self) -> Arc<dyn StorageDriver> {
        Cassandra::at(&self.addresses.join(",")).node(0).await.unwrap()
    }

    pub(crate) fn new_name() -> KeyspaceName {
        KeyspaceName::new(format!("only_{:016x}", Clock::system().random())).unwrap()
    }

    /// Makes writes that only the first server gets, and starts all servers again. At the end the
    /// first server has these rows, and nothing will bring them to the others: `write` is dropped,
    /// no request waits anywhere, and the first server keeps no hint.
    ///
    /// `keys` are the rows, and `value` is their value if it is known. Returns whether the first
    /// server got them in time. If the client sent a write to a server that had just been killed,
    /// the write may have reached no server.
    ///
    /// A server that is suspended, and not killed, would find the write in its connections when it
    /// goes on.
    pub(crate) async fn write_to_the_first(
        &self,
        keyspace: &KeyspaceName,
        keys: &[Key],
        value: Option<&Bytes>,
        write: impl Future,
    ) -> bool {
        let clock = Clock::system();
        let session = session(&self.addresses).await.unwrap();
        clock.sleep(COMMIT_LOG).await;
        let killed: Vec<_> =
            self.addresses[1..].iter().map(|at| KilledServer::node_at(at).unwrap()).collect();
        let began = clock.now();
        let deadline = began + NO_HINT_YET - COMMIT_LOG;
        let seen = async {
            for key in keys {
                while !self.has(&session, keyspace, key, value).await {
                    if clock.now() >= deadline {
                        return false;
                    }
                    clock.sleep(Duration::from_millis(50)).await;
                }
            }
            true
        };
        // The write has no answer. It must not be sent again when the servers are back.
        let is_there = tokio::select! {
            is_there = seen => is_there,
            _ = async { (write.await, pending::<()>().await) } => false,
        };
        if !is_there {
            drop(killed);
            self.until_whole(keyspace).await;
            return false;
        }
        clock.sleep(COMMIT_LOG).await;
        let first = KilledServer::node_at(&self.addresses[0]).unwrap();
        let took = clock.now() - began;
        assert!(took < NO_HINT_YET + COMMIT_LOG, "the first server may keep hints after {took:?}");
        drop((first, killed));
        self.until_whole(keyspace).await;
        true
    }

    /// Suspends a server until the value is dropped.
    pub(crate) fn without(&self, server: usize) -> SuspendedProcesses {
        SuspendedProcesses::nodes_at(&[&self.addresses[server]]).unwrap()
    }

    /// Waits until each server takes requests, and knows that the others do. The row that is read
    /// does not exist, so nothing is repaired.
    pub(crate) async fn until_whole(&self, keyspace: &KeyspaceName) {
        let (clock, deadline) = (Clock::system(), soon());
        for (server, at) in self.addresses.iter().enumerate() {
            while let Err(error) = self.reads_of_all(keyspace, server).await {
                assert!(clock.now() < deadline, "{at} does not reach all servers: {error}");
                clock.sleep(Duration::from_millis(200)).await;
            }
        }
    }

    async fn reads_of_all(&self, keyspace: &KeyspaceName, server: usize) -> Result<(), String> {
        let text = format!("SELECT value FROM {keyspace}.values WHERE p_key = 0xff AND c_col = 0x");
        let session = session(&self.addresses).await?;
        let statement = self.statement(text, server, Consistency::All);
        session.query_unpaged(statement, ()).await.map(drop).map_err(|error| error.to_string())
    }

    /// The Paxos of the servers, as the first server has it in its configuration.
    pub(crate) async fn paxos_variant(&self) -> String {
        let session = session(&self.addresses).await.unwrap();
        let text = "SELECT value FROM system_views.settings WHERE name = 'paxos_variant'";
        let statement = self.statement(text.to_owned(), 0, Consistency::One);
        let answer = session.query_unpaged(statement, ()).await.unwrap();
        answer.into_rows_result().unwrap().single_row::<(String,)>().unwrap().0
    }

    /// Returns whether the first server has a row, while it is alone.
    async fn has(
        &self,
        session: &Session,
        keyspace: &KeyspaceName,
        key: &Key,
        value: Option<&Bytes>,
    ) -> bool {
        let Key { pkey, ccols } = key;
        let text = format!(
            "SELECT value FROM {keyspace}.values WHERE p_key = 0x{pkey:x} AND c_col = 0x{ccols:x}"
        );
        let statement = self.statement(text, 0, Consistency::One);
        let Ok(answer) = session.query_unpaged(statement, ()).await else { return false };
        let found = answer.into_rows_result().unwrap().maybe_first_row::<(Vec<u8>,)>().unwrap();
        found.is_some_and(|(found,)| value.is_none_or(|value| *value == found))
    }

    /// A statement that one server coordinates.
    fn statement(&self, text: String, server: usize, consistency: Consistency) -> Statement {
        let at: SocketAddr = self.addresses[server].parse().unwrap();
        let mut statement = Statement::new(text);
        let to = NodeIdentifier::NodeAddress(at);
        statement.set_load_balancing_policy(Some(SingleTargetLoadBalancingPolicy::new(to, None)));
        statement.set_consistency(consistency);
        statement.set_request_timeout(Some(PATIENCE / 10));
        statement
    }
}

async fn session(addresses: &[String]) -> Result<Session, String> {
    let builder = SessionBuilder::new().known_nodes(addresses);
    builder
        .connection_timeout(Duration::from_secs(2))
        .build()
        .await
        .map_err(|error| error.to_string())
}
