//! The driver that a node has from its start on, even while the storage is out of reach.

use std::{pin::pin, sync::Arc};

use async_trait::async_trait;
use clock::{Clock, Instant};
use ctl::StorageTarget;
use istorage::{BackupStream, Error, KeyspaceName, Result, SharedStorage, StorageDriver};
use tokio::sync::{Notify, OnceCell};

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

    async fn backup(&self, until: Instant) -> Result<Option<BackupStream>> {
        self.driver(until).await?.backup(until).await
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
