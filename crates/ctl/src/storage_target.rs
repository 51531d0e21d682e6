//! A storage, and the way to reach it.

mod text;

use std::sync::Arc;

use clock::{Clock, Instant};
use istorage::{Capabilities, KeyspaceName, ReadOnlyDriver, Result, StorageDriver, mem::MemDriver};
use istorage_cassandra::{CassandraConfig, CassandraDriver};
use istorage_dynamodb::{DynamoDbConfig, DynamoDbDriver};
use istorage_redb::{RedbConfig, RedbDriver};

/// A storage, with its settings.
#[derive(Clone, Debug, PartialEq)]
pub enum StorageTarget {
    /// In the memory of the process.
    Mem,
    /// A file of redb.
    Redb(RedbConfig),
    /// Apache Cassandra.
    Cassandra(Box<CassandraConfig>),
    /// Amazon DynamoDB.
    DynamoDb(Box<DynamoDbConfig>),
}

impl StorageTarget {
    /// Returns whether the data of the storage belong to this process. Then a second connection is
    /// the same as the first one.
    pub fn is_embedded(&self) -> bool {
        matches!(self, StorageTarget::Mem | StorageTarget::Redb(_))
    }

    /// Returns the capabilities of the keyspaces, without a connection.
    pub fn capabilities(&self) -> Capabilities {
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
    ///
    /// # Errors
    /// Those of the driver.
    pub async fn connect(&self, clock: Clock, deadline: Instant) -> Result<Arc<dyn StorageDriver>> {
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

    /// Connects to the storage for reading only. A redb file and its log are not changed by a
    /// single byte.
    ///
    /// # Errors
    /// Those of the driver.
    pub async fn open_for_reading(
        &self,
        clock: Clock,
        deadline: Instant,
    ) -> Result<Arc<dyn StorageDriver>> {
        Ok(match self {
            StorageTarget::Redb(config) => {
                Arc::new(RedbDriver::open_for_reading(config.clone(), clock).await?)
            }
            target => Arc::new(ReadOnlyDriver::new(target.connect(clock, deadline).await?)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
