//! Helpers that the trials share.

use std::time::Duration;

use aws_credential_types::Credentials;
use aws_sdk_dynamodb::{
    Client,
    config::{BehaviorVersion, Region},
};
use bytes::Bytes;
use clock::{Clock, Instant};
use futures::TryStreamExt;
use istorage::{
    AppStorage, Conditional, Consistency, Key, KeyspaceName, Order, OrderedPut, Put, Range, Row,
    SharedStorage, StorageDriver,
};
use istorage_dynamodb::{DynamoDbConfig, DynamoDbDriver};

/// The server that the variable names.
pub(crate) struct DynamoDbServer {
    pub(crate) endpoint: String,
}

impl DynamoDbServer {
    pub(crate) fn at(endpoint: &str) -> DynamoDbServer {
        DynamoDbServer { endpoint: endpoint.to_owned() }
    }

    pub(crate) fn config(&self) -> DynamoDbConfig {
        DynamoDbConfig::local(&self.endpoint)
    }

    pub(crate) async fn driver(&self) -> DynamoDbDriver {
        self.driver_with(self.config(), Clock::system()).await
    }

    pub(crate) async fn driver_with(&self, config: DynamoDbConfig, clock: Clock) -> DynamoDbDriver {
        DynamoDbDriver::connect(config, clock, soon()).await.unwrap()
    }

    /// A separate client, for requests that the driver does not make.
    pub(crate) fn raw(&self) -> Client {
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("local"))
            .credentials_provider(Credentials::new("local", "local", None, None, "trial"))
            .endpoint_url(&self.endpoint);
        Client::from_conf(config.build())
    }

    /// A new keyspace.
    pub(crate) async fn scratch(&self) -> DynamoDbScratch {
        let driver = self.driver().await;
        let name = unique_name();
        driver.create(&name, soon()).await.unwrap();
        let storage = driver.open(&name, soon()).await.unwrap().unwrap();
        DynamoDbScratch { driver, name, storage }
    }
}

/// A keyspace of one trial.
pub(crate) struct DynamoDbScratch {
    pub(crate) driver: DynamoDbDriver,
    pub(crate) name: KeyspaceName,
    pub(crate) storage: SharedStorage,
}

impl DynamoDbScratch {
    pub(crate) fn table(&self) -> String {
        table_of(&self.name)
    }

    /// The same keyspace on a node with another wall clock.
    pub(crate) async fn node(&self, server: &DynamoDbServer, wall_ahead_ms: i64) -> SharedStorage {
        let clock = Clock::system().with_wall_offset(wall_ahead_ms);
        let driver = server.driver_with(server.config(), clock).await;
        driver.open(&self.name, soon()).await.unwrap().unwrap()
    }

    /// Removes the keyspace when its trial has passed.
    pub(crate) async fn remove(self) {
        self.driver.drop_keyspace(&self.name, soon()).await.unwrap();
    }
}

pub(crate) fn table_of(name: &KeyspaceName) -> String {
    format!("vvm.{name}")
}

pub(crate) fn unique_name() -> KeyspaceName {
    KeyspaceName::new(format!("trial_{:016x}", Clock::system().random())).unwrap()
}

/// A deadline that is late enough for a server that is busy with other trials.
pub(crate) fn soon() -> Instant {
    Clock::system().now() + TIMEOUT
}

pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) async fn pass(duration: Duration) {
    Clock::system().sleep(duration).await;
}

pub(crate) fn insert(ccols: impl Into<Bytes>, value: impl Into<Bytes>) -> Conditional {
    Conditional::Insert { ccols: ccols.into(), value: value.into(), ttl: None }
}

pub(crate) fn put(key: Key, value: impl Into<Bytes>) -> Put {
    Put { key, value: value.into() }
}

pub(crate) fn ordered(key: Key, value: impl Into<Bytes>, order: u64) -> OrderedPut {
    OrderedPut { key, value: value.into(), order: Order::new(order).unwrap(), ttl: None }
}

pub(crate) async fn get(storage: &dyn AppStorage, key: &Key) -> Option<Bytes> {
    storage.get(key, Consistency::Plain, soon()).await.unwrap()
}

pub(crate) async fn read(storage: &dyn AppStorage, pkey: &'static str, range: Range) -> Vec<Row> {
    let rows = storage.read(pkey.into(), range, Consistency::Plain, TIMEOUT);
    rows.try_collect().await.unwrap()
}
