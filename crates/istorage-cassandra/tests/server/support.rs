//! Helpers that the trials share.

use std::time::Duration;

use bytes::Bytes;
use clock::{Clock, Instant};
use istorage::{ErrorKind, KeyspaceName, Result, SharedStorage, StorageDriver};
use istorage_cassandra::{CassandraConfig, CassandraDriver, Replication};
use scylla::{
    client::{session::Session, session_builder::SessionBuilder},
    response::query_result::QueryRowsResult,
};

/// The servers that the variable names.
pub(crate) struct CassandraCluster {
    pub(crate) nodes: Vec<String>,
}

impl CassandraCluster {
    /// The configuration, which also allows keyspaces on one server.
    pub(crate) fn config(&self) -> CassandraConfig {
        CassandraConfig {
            replication: Some(Replication::UpToThree),
            ..CassandraConfig::new(self.nodes.clone())
        }
    }

    pub(crate) async fn driver(&self) -> CassandraDriver {
        self.driver_with(Clock::system()).await
    }

    pub(crate) async fn driver_with(&self, clock: Clock) -> CassandraDriver {
        CassandraDriver::connect(self.config(), clock, soon()).await.unwrap()
    }

    /// A separate client, for requests that the driver does not make.
    pub(crate) async fn raw(&self) -> Session {
        SessionBuilder::new().known_nodes(&self.nodes).build().await.unwrap()
    }

    /// A new keyspace, which is dropped when its trial passes.
    pub(crate) async fn scratch(&self) -> CassandraScratch {
        let driver = self.driver().await;
        let name = unique_name();
        driver.create(&name, soon()).await.unwrap();
        let storage = driver.open(&name, soon()).await.unwrap().unwrap();
        CassandraScratch { driver, name, storage, raw: self.raw().await }
    }
}

pub(crate) struct CassandraScratch {
    pub(crate) driver: CassandraDriver,
    pub(crate) name: KeyspaceName,
    pub(crate) storage: SharedStorage,
    pub(crate) raw: Session,
}

impl CassandraScratch {
    /// Runs a statement. `{table}` in the statement stands for the keyspace's table.
    pub(crate) async fn run(&self, statement: &str) {
        let table = format!("{}.values", self.name);
        run(&self.raw, &statement.replace("{table}", &table)).await;
    }

    pub(crate) async fn drop(self) {
        self.driver.drop_keyspace(&self.name, soon()).await.unwrap();
    }
}

pub(crate) async fn run(session: &Session, statement: &str) {
    session.query_unpaged(statement, ()).await.unwrap();
}

pub(crate) async fn ask(session: &Session, statement: &str) -> QueryRowsResult {
    session.query_unpaged(statement, ()).await.unwrap().into_rows_result().unwrap()
}

pub(crate) fn unique_name() -> KeyspaceName {
    KeyspaceName::new(format!("vvm_test_{:016x}", Clock::system().random())).unwrap()
}

/// The deadline of a call.
pub(crate) fn soon() -> Instant {
    Clock::system().now() + PATIENCE
}

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `done` returns true.
pub(crate) async fn until<F: Future<Output = bool>>(mut done: impl FnMut() -> F) {
    let (clock, deadline) = (Clock::system(), soon());
    while !done().await {
        assert!(clock.now() < deadline, "the condition did not come true within {PATIENCE:?}");
        clock.sleep(Duration::from_millis(50)).await;
    }
}

/// Repeats a call that may be repeated, while the servers are too slow for it. The servers share a
/// small machine.
pub(crate) async fn insist<T, F: Future<Output = Result<T>>>(call: impl Fn() -> F) -> T {
    let deadline = soon();
    loop {
        match call().await {
            Ok(done) => return done,
            Err(error)
                if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::OutcomeUnknown) =>
            {
                assert!(Clock::system().now() < deadline, "{error:?}");
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Bytes that compression cannot make smaller.
pub(crate) fn noise(len: usize) -> Bytes {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}
