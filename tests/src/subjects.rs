//! Each driver as a subject of the trials of the storage contract.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use clock::{Clock, ManualClock};
use istorage::{Result, StorageDriver, mem::MemDriver};
use istorage_cassandra::{CassandraDriver, Replication};
use istorage_dynamodb::DynamoDbDriver;
use istorage_redb::{RedbConfig, RedbDriver};
use tck::storage::{Scale, Subject};

/// The longest time for a connection.
const CONNECT: Duration = Duration::from_secs(20);

/// The driver in memory, on a clock that is moved by hand. Hours pass at once, and exactly to the
/// nanosecond.
#[derive(Debug)]
pub struct Mem {
    manual: ManualClock,
    driver: MemDriver,
}

impl Default for Mem {
    fn default() -> Mem {
        let manual = ManualClock::new(1);
        let driver = MemDriver::new(manual.clock());
        Mem { manual, driver }
    }
}

#[async_trait]
impl Subject for Mem {
    fn clock(&self) -> Clock {
        self.manual.clock()
    }

    fn scale(&self) -> Scale {
        Scale::Embedded
    }

    async fn node(&self, _wall_ahead_ms: i64) -> Result<Arc<dyn StorageDriver>> {
        Ok(Arc::new(self.driver.clone()))
    }

    async fn spare(&self) -> Result<Arc<dyn StorageDriver>> {
        Ok(Arc::new(MemDriver::new(self.clock())))
    }

    async fn pass(&self, duration: Duration) {
        self.manual.advance(duration);
    }

    fn max_concurrent_trials(&self) -> usize {
        1
    }
}

/// The driver in memory, on the system clock.
#[derive(Debug)]
pub struct MemInRealTime(MemDriver);

impl Default for MemInRealTime {
    fn default() -> MemInRealTime {
        MemInRealTime(MemDriver::new(Clock::system()))
    }
}

#[async_trait]
impl Subject for MemInRealTime {
    fn clock(&self) -> Clock {
        Clock::system()
    }

    fn scale(&self) -> Scale {
        Scale::Embedded
    }

    async fn node(&self, _wall_ahead_ms: i64) -> Result<Arc<dyn StorageDriver>> {
        Ok(Arc::new(self.0.clone()))
    }

    async fn spare(&self) -> Result<Arc<dyn StorageDriver>> {
        Ok(Arc::new(MemDriver::new(self.clock())))
    }
}

/// A redb file, and spare files beside it that trials may close.
#[derive(Debug)]
pub struct Redb {
    folder: PathBuf,
    driver: Arc<RedbDriver>,
    spares: AtomicU32,
}

impl Redb {
    /// Opens a new file in a folder.
    ///
    /// # Errors
    /// The errors of the driver.
    pub async fn open_in(folder: &Path) -> Result<Redb> {
        let config = RedbConfig::new(folder.join("nodes.redb"));
        let driver = Arc::new(RedbDriver::open(config, Clock::system()).await?);
        Ok(Redb { folder: folder.to_owned(), driver, spares: AtomicU32::new(0) })
    }
}

#[async_trait]
impl Subject for Redb {
    fn clock(&self) -> Clock {
        Clock::system()
    }

    fn scale(&self) -> Scale {
        Scale::Embedded
    }

    async fn node(&self, _wall_ahead_ms: i64) -> Result<Arc<dyn StorageDriver>> {
        Ok(Arc::clone(&self.driver) as _)
    }

    async fn spare(&self) -> Result<Arc<dyn StorageDriver>> {
        let file = format!("spare{}.redb", self.spares.fetch_add(1, Ordering::Relaxed));
        let config = RedbConfig::new(self.folder.join(file));
        Ok(Arc::new(RedbDriver::open(config, self.clock()).await?))
    }
}

/// A Cassandra cluster of one node or more.
#[derive(Debug)]
pub struct Cassandra {
    nodes: Vec<String>,
}

impl Cassandra {
    /// The cluster with these nodes, as `host:port,host:port`. Each row has a replica on each node.
    #[must_use]
    pub fn at(addresses: &str) -> Cassandra {
        Cassandra { nodes: addresses.split(',').map(str::to_owned).collect() }
    }
}

#[async_trait]
impl Subject for Cassandra {
    fn clock(&self) -> Clock {
        Clock::system()
    }

    fn scale(&self) -> Scale {
        Scale::Server
    }

    async fn node(&self, wall_ahead_ms: i64) -> Result<Arc<dyn StorageDriver>> {
        let clock = self.clock().with_wall_offset(wall_ahead_ms);
        let mut config = istorage_cassandra::CassandraConfig::new(self.nodes.clone());
        let replicas = u8::try_from(self.nodes.len()).unwrap_or(u8::MAX);
        config.replication = Some(Replication::Simple(replicas));
        let deadline = clock.now() + CONNECT;
        Ok(Arc::new(CassandraDriver::connect(config, clock, deadline).await?))
    }
}

/// DynamoDB Local.
#[derive(Debug)]
pub struct DynamoDb {
    endpoint: String,
}

impl DynamoDb {
    /// The DynamoDB Local at this URL.
    #[must_use]
    pub fn at(endpoint: &str) -> DynamoDb {
        DynamoDb { endpoint: endpoint.to_owned() }
    }
}

#[async_trait]
impl Subject for DynamoDb {
    fn clock(&self) -> Clock {
        Clock::system()
    }

    fn scale(&self) -> Scale {
        Scale::Server
    }

    async fn node(&self, wall_ahead_ms: i64) -> Result<Arc<dyn StorageDriver>> {
        let clock = self.clock().with_wall_offset(wall_ahead_ms);
        let config = istorage_dynamodb::DynamoDbConfig::local(&self.endpoint);
        let deadline = clock.now() + CONNECT;
        Ok(Arc::new(DynamoDbDriver::connect(config, clock, deadline).await?))
    }
}
