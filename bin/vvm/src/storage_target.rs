//! A storage, and the way to reach it.

use std::{fmt, pin::pin, str::FromStr, sync::Arc};

use async_trait::async_trait;
use clock::{Clock, Instant};
use istorage::{
    Capabilities, Error, KeyspaceName, Result, SharedStorage, StorageDriver, mem::MemDriver,
};
use istorage_cassandra::{CassandraConfig, CassandraDriver};
use istorage_dynamodb::{DynamoDbConfig, DynamoDbDriver};
use istorage_redb::{RedbConfig, RedbDriver};
use tokio::sync::{Notify, OnceCell};

/// A storage, with its settings.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum StorageTarget {
    Mem,
    Redb(RedbConfig),
    Cassandra(Box<CassandraConfig>),
    DynamoDb(Box<DynamoDbConfig>),
}

impl StorageTarget {
    /// Returns whether the data of the storage belong to this process. Then a second connection is
    /// the same as the first one.
    pub(crate) fn is_embedded(&self) -> bool {
        matches!(self, StorageTarget::Mem | StorageTarget::Redb(_))
    }

    /// Returns the capabilities of the keyspaces, without a connection.
    pub(crate) fn capabilities(&self) -> Capabilities {
        match self {
            StorageTarget::Mem => istorage::mem::CAPABILITIES,
            StorageTarget::Redb(_) => istorage_redb::CAPABILITIES,
            StorageTarget::Cassandra(_) => istorage_cassandra::CAPABILITIES,
            StorageTarget::DynamoDb(_) => istorage_dynamodb::CAPABILITIES,
        }
    }

    /// Returns instructions to remove a keyspace that was left behind in the storage.
    pub(crate) fn removal_instructions(&self, keyspace: &KeyspaceName) -> String {
        match self {
            StorageTarget::Mem => "the keyspace ends with this process".to_owned(),
            StorageTarget::Redb(config) => {
                format!(
                    "the keyspace is in {}: remove that file if it holds nothing else",
                    config.path.display()
                )
            }
            StorageTarget::Cassandra(_) => {
                format!("remove the keyspace in cqlsh: DROP KEYSPACE {keyspace};")
            }
            StorageTarget::DynamoDb(config) => format!(
                "remove the table: aws dynamodb delete-table --table-name {}{keyspace}",
                config.table_prefix
            ),
        }
    }

    /// Connects to the storage.
    pub(crate) async fn connect(
        &self,
        clock: Clock,
        deadline: Instant,
    ) -> Result<Arc<dyn StorageDriver>> {
        Ok(match self.clone() {
            StorageTarget::Mem => Arc::new(MemDriver::new(clock)),
            StorageTarget::Redb(config) => Arc::new(RedbDriver::open(config, clock).await?),
            StorageTarget::Cassandra(config) => {
                Arc::new(CassandraDriver::connect(*config, clock, deadline).await?)
            }
            StorageTarget::DynamoDb(config) => {
                Arc::new(DynamoDbDriver::connect(*config, clock, deadline).await?)
            }
        })
    }
}

/// A driver that connects when it is used for the first time. Before that, the node already takes
/// its ports and answers about its state.
#[derive(Debug)]
pub(crate) struct LazyDriver {
    target: StorageTarget,
    clock: Clock,
    driver: OnceCell<Arc<dyn StorageDriver>>,
    is_connected: Notify,
}

impl LazyDriver {
    pub(crate) fn new(target: StorageTarget, clock: Clock) -> LazyDriver {
        LazyDriver { target, clock, driver: OnceCell::new(), is_connected: Notify::new() }
    }

    async fn driver(&self, deadline: Instant) -> Result<&Arc<dyn StorageDriver>> {
        let connect = || self.target.connect(self.clock.clone(), deadline);
        let driver = self.driver.get_or_try_init(connect).await.map_err(|error| {
            Error::new(error.kind(), format!("cannot open {}", self.target)).with_source(error)
        })?;
        self.is_connected.notify_waiters();
        Ok(driver)
    }
}

#[async_trait]
impl StorageDriver for LazyDriver {
    fn name(&self) -> &'static str {
        match self.target {
            StorageTarget::Mem => "mem",
            StorageTarget::Redb(_) => "redb",
            StorageTarget::Cassandra(_) => "cassandra",
            StorageTarget::DynamoDb(_) => "dynamodb",
        }
    }

    async fn create(&self, keyspace: &KeyspaceName, deadline: Instant) -> Result<()> {
        self.driver(deadline).await?.create(keyspace, deadline).await
    }

    async fn open(
        &self,
        keyspace: &KeyspaceName,
        deadline: Instant,
    ) -> Result<Option<SharedStorage>> {
        self.driver(deadline).await?.open(keyspace, deadline).await
    }

    async fn drop_keyspace(&self, keyspace: &KeyspaceName, deadline: Instant) -> Result<()> {
        self.driver(deadline).await?.drop_keyspace(keyspace, deadline).await
    }

    async fn failed(&self) -> Error {
        loop {
            let mut connected = pin!(self.is_connected.notified());
            connected.as_mut().enable();
            match self.driver.get() {
                Some(driver) => return driver.failed().await,
                // A storage that is not connected has not failed. The caller that opens a keyspace
                // gets the error of the connection.
                None => connected.await,
            }
        }
    }

    async fn close(&self) {
        if let Some(driver) = self.driver.get() {
            driver.close().await;
        }
    }
}

impl fmt::Display for StorageTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StorageTarget::Mem => f.write_str("mem"),
            StorageTarget::Redb(config) => write!(f, "redb:{}", config.path.display()),
            StorageTarget::Cassandra(config) => {
                write!(f, "cassandra:{}", config.contact_points.join(","))
            }
            StorageTarget::DynamoDb(config) => match &config.endpoint {
                Some(endpoint) => write!(f, "dynamodb:{endpoint}"),
                None => f.write_str("dynamodb"),
            },
        }
    }
}

impl FromStr for StorageTarget {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<StorageTarget, String> {
        let (driver, address) = text.split_once(':').unwrap_or((text, ""));
        match (driver, address) {
            ("mem", "") => Ok(StorageTarget::Mem),
            ("redb", path) if !path.is_empty() => Ok(StorageTarget::Redb(RedbConfig::new(path))),
            ("cassandra", address) if has_port(address) => {
                Ok(StorageTarget::Cassandra(Box::new(cassandra(address))))
            }
            ("dynamodb", endpoint) if endpoint.starts_with("http://") || endpoint.starts_with("https://") => {
                Ok(StorageTarget::DynamoDb(Box::new(dynamodb(endpoint))))
            }
            _ => Err("expected mem, redb:PATH, cassandra:HOST:PORT (several with commas) or dynamodb:ENDPOINT, where \
                      ENDPOINT starts with http:// or https://"
                .to_owned()),
        }
    }
}

fn has_port(addresses: &str) -> bool {
    addresses.split(',').all(|address| match address.rsplit_once(':') {
        Some((host, port)) => !host.is_empty() && port.parse::<u16>().is_ok(),
        None => false,
    })
}

/// Returns the settings for addresses on the command line. Such keyspaces are for trying a storage,
/// so a cluster of one server is enough for them.
fn cassandra(addresses: &str) -> CassandraConfig {
    CassandraConfig {
        replication: Some(istorage_cassandra::Replication::UpToThree),
        ..CassandraConfig::new(addresses.split(','))
    }
}

/// Returns the settings for an endpoint on the command line. DynamoDB Local on this machine takes
/// any credentials and region. Elsewhere the usual settings of AWS apply.
fn dynamodb(endpoint: &str) -> DynamoDbConfig {
    if ["http://127.0.0.1:", "http://localhost:"].iter().any(|local| endpoint.starts_with(local)) {
        return DynamoDbConfig::local(endpoint);
    }
    DynamoDbConfig { endpoint: Some(endpoint.to_owned()), ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storage_is_parsed_from_its_text() {
        for text in [
            "mem",
            "redb:data/vvm.redb",
            "cassandra:127.0.0.1:9042",
            "cassandra:a:9042,b:9042",
            "dynamodb:http://127.0.0.1:8000",
        ] {
            assert_eq!(text.parse::<StorageTarget>().unwrap().to_string(), text);
        }
    }

    /// `config check` judges a configuration without a connection, and must judge it like a node
    /// with a connection.
    #[tokio::test]
    async fn capabilities_without_a_connection_equal_those_with_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("vvm.redb");
        let (clock, soon) = (Clock::system(), Instant::FAR_FUTURE);
        for target in [StorageTarget::Mem, StorageTarget::Redb(RedbConfig::new(file))] {
            let driver = target.connect(clock.clone(), soon).await.unwrap();
            let keyspace = KeyspaceName::new("sysvvm").unwrap();
            driver.create(&keyspace, soon).await.unwrap();
            let storage = driver.open(&keyspace, soon).await.unwrap().unwrap();
            assert_eq!(storage.capabilities(), target.capabilities());
            driver.close().await;
        }
    }

    #[test]
    fn an_invalid_storage_is_refused() {
        for text in [
            "",
            "mem:x",
            "redb",
            "redb:",
            "cassandra",
            "cassandra:host",
            "cassandra:host:x",
            "cassandra::1",
            "dynamodb",
            "dynamodb:host:1",
            "mongo:x",
        ] {
            assert!(text.parse::<StorageTarget>().is_err(), "{text}");
        }
    }
}
