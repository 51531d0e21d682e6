//! The driver: keyspaces as tables of one account and region.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use aws_config::{
    BehaviorVersion, Region, retry::RetryConfig,
    stalled_stream_protection::StalledStreamProtectionConfig, timeout::TimeoutConfig,
};
use aws_credential_types::Credentials;
use aws_sdk_dynamodb::{Client, config};
use base::locks::lock;
use clock::{Clock, Instant};
use futures::future::BoxFuture;
use istorage::{Error, Guarded, KeyspaceName, Result, SharedStorage, StorageDriver};

use crate::{
    DynamoDbConfig, connection::Connection, storage::DynamoDbStorage, table::KeyspaceTable,
    table_setup::TableSetup, time::ServiceClock,
};

/// How long a connection may take to be established. The deadlines of the calls bound everything
/// else.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Keyspaces as tables of Amazon DynamoDB.
///
/// # Consistency
/// Every read is consistent, plain reads too. The service checks a condition in the request that
/// the condition guards. A write of several rows is one transaction. The driver sends a write again
/// only if the service has said that the write did nothing. The service says so when it is busy, or
/// when another transaction works on the same row. The driver then sends the write again with
/// growing pauses, until the deadline. The driver is not for global tables: a node may not see an
/// acknowledged write of another region.
///
/// # Expiry
/// A conditional row that expires is a lease. The lease has expired for a node when the node has
/// seen the lease unchanged for as long as the lease lasts, on the node's monotonic clock. So no
/// date ends a lease early or late. A node that sees a lease for the first time waits for the whole
/// lease, even if the lease was written long ago. An expired lease stays in the table until another
/// lease replaces it.
///
/// An ordered row expires by the service's time. The driver knows this time from the `Date` of the
/// service's answers and from the node's monotonic clock. DynamoDB removes the item of an expired
/// row one or several days later.
///
/// # Dropping
/// A call that is dropped sends nothing more. If a request of the call is under way, its connection
/// is closed, and the write may still happen.
#[derive(Debug)]
pub struct DynamoDbDriver {
    connection: Arc<Connection>,
    config: DynamoDbConfig,
    clock: Clock,
    /// The keyspaces that this driver has created and not dropped.
    created: Mutex<HashSet<KeyspaceName>>,
}

impl DynamoDbDriver {
    /// Finds the region and the credentials. Sends no request to DynamoDB.
    ///
    /// # Errors
    /// `Invalid` if the configuration cannot work or there is no region; `Unavailable` if the
    /// deadline passes first.
    pub async fn connect(
        config: DynamoDbConfig,
        clock: Clock,
        deadline: Instant,
    ) -> Result<DynamoDbDriver> {
        config.check().map_err(Error::invalid_setting)?;
        let late = |_| Error::unavailable("region and credentials of AWS were not found in time");
        let sdk = clock.timeout_at(deadline, sdk_config(&config)).await.map_err(late)?;
        if sdk.region().is_none() {
            return Err(Error::invalid(
                "there is no region for DynamoDB: set `region`, or AWS_REGION, or one in the AWS profile",
            ));
        }
        Ok(DynamoDbDriver::with_sdk((&sdk).into(), config, clock))
    }

    /// Makes a driver over a client that a test provides.
    pub(crate) fn with_sdk(
        sdk: config::Builder,
        config: DynamoDbConfig,
        clock: Clock,
    ) -> DynamoDbDriver {
        let service_clock = ServiceClock::new(clock.clone());
        let sdk = sdk
            .interceptor(service_clock.clone())
            .retry_config(RetryConfig::disabled())
            .timeout_config(TimeoutConfig::builder().connect_timeout(CONNECT_TIMEOUT).build())
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
        let connection =
            Connection::new(Client::from_conf(sdk.build()), clock.clone(), service_clock);
        let connection = Arc::new(connection);
        DynamoDbDriver { connection, config, clock, created: Mutex::default() }
    }

    fn table(&self, keyspace: &KeyspaceName) -> KeyspaceTable {
        KeyspaceTable::new(Arc::clone(&self.connection), self.config.table_name(keyspace))
    }

    async fn within<T>(
        &self,
        deadline: Instant,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let late = || Error::unavailable("DynamoDB did not answer before the deadline");
        if self.clock.now() >= deadline {
            return Err(late());
        }
        self.clock.timeout_at(deadline, call).await.unwrap_or_else(|_| Err(late()))
    }
}

/// The settings of the SDK. Settings that the configuration does not give come from the usual AWS
/// chain.
///
/// The future is boxed as a trait object, so that a crate that awaits it does not compile the code
/// of the SDK again.
fn sdk_config(config: &DynamoDbConfig) -> BoxFuture<'static, aws_config::SdkConfig> {
    let mut loader = aws_config::defaults(BehaviorVersion::latest());
    if let Some(endpoint) = &config.endpoint {
        loader = loader.endpoint_url(endpoint);
    }
    if let Some(region) = &config.region {
        loader = loader.region(Region::new(region.clone()));
    }
    if let (Some(id), Some(secret)) = (&config.access_key_id, &config.secret_access_key) {
        let credentials = Credentials::new(id, secret.reveal(), None, None, "configuration");
        loader = loader.credentials_provider(credentials);
    }
    Box::pin(loader.load())
}

#[async_trait]
impl StorageDriver for DynamoDbDriver {
    fn name(&self) -> &'static str {
        "dynamodb"
    }

    async fn create(&self, keyspace: &KeyspaceName, deadline: Instant) -> Result<()> {
        let table = self.table(keyspace);
        self.within(deadline, TableSetup::of(&table).create(&self.config.billing, deadline))
            .await?;
        lock(&self.created).insert(keyspace.clone());
        Ok(())
    }

    async fn open(
        &self,
        keyspace: &KeyspaceName,
        deadline: Instant,
    ) -> Result<Option<SharedStorage>> {
        let table = self.table(keyspace);
        let was_created = lock(&self.created).contains(keyspace);
        if !self.within(deadline, TableSetup::of(&table).exists(was_created, deadline)).await? {
            return Ok(None);
        }
        // Without this step, a driver that has just started judges no ordered row to have expired.
        self.within(deadline, table.end_doubt(deadline)).await?;
        let storage = Arc::new(DynamoDbStorage(table.opened()));
        Ok(Some(Arc::new(Guarded::new(storage, self.clock.clone()))))
    }

    async fn drop_keyspace(&self, keyspace: &KeyspaceName, deadline: Instant) -> Result<()> {
        let table = self.table(keyspace);
        lock(&self.created).remove(keyspace);
        self.within(deadline, TableSetup::of(&table).remove(deadline)).await
    }

    async fn close(&self) {
        self.connection.close().await;
    }
}

#[cfg(test)]
mod tests;
