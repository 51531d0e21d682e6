//! The keyspaces of a run. A keyspace is recorded before it is made, and stays recorded until it is
//! surely dropped.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use base::locks::lock;
use clock::{Clock, Instant};
use istorage::{Error, KeyspaceName, Result, SharedStorage, StorageDriver};

/// The longest time for dropping one keyspace.
const DROP: Duration = Duration::from_secs(60);

/// Tracks the keyspaces that its drivers made and that may still exist. Clones share the record.
#[derive(Clone, Debug, Default)]
pub struct KeyspaceTracker(Arc<Mutex<BTreeSet<KeyspaceName>>>);

impl KeyspaceTracker {
    /// A driver over `inner`. The tracker records the keyspaces that this driver makes and drops.
    #[must_use]
    pub fn track(&self, inner: Arc<dyn StorageDriver>) -> Arc<dyn StorageDriver> {
        Arc::new(TrackingDriver { tracker: self.clone(), inner })
    }

    /// The recorded keyspaces, which may exist.
    #[must_use]
    pub fn recorded(&self) -> Vec<KeyspaceName> {
        lock(&self.0).iter().cloned().collect()
    }

    /// Drops the recorded keyspaces, and returns those that could not be dropped.
    pub async fn drop_all(
        &self,
        driver: &dyn StorageDriver,
        clock: &Clock,
    ) -> Vec<(KeyspaceName, Error)> {
        let mut left = Vec::new();
        for keyspace in self.recorded() {
            match driver.drop_keyspace(&keyspace, clock.now() + DROP).await {
                Ok(()) => drop(lock(&self.0).remove(&keyspace)),
                Err(error) => left.push((keyspace, error)),
            }
        }
        left
    }
}

#[derive(Debug)]
struct TrackingDriver {
    tracker: KeyspaceTracker,
    inner: Arc<dyn StorageDriver>,
}

#[async_trait]
impl StorageDriver for TrackingDriver {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    async fn create(&self, keyspace: &KeyspaceName, deadline: Instant) -> Result<()> {
        // Record the keyspace even if the call fails: the keyspace may have been made.
        lock(&self.tracker.0).insert(keyspace.clone());
        self.inner.create(keyspace, deadline).await
    }

    async fn open(
        &self,
        keyspace: &KeyspaceName,
        deadline: Instant,
    ) -> Result<Option<SharedStorage>> {
        self.inner.open(keyspace, deadline).await
    }

    async fn drop_keyspace(&self, keyspace: &KeyspaceName, deadline: Instant) -> Result<()> {
        self.inner.drop_keyspace(keyspace, deadline).await?;
        lock(&self.tracker.0).remove(keyspace);
        Ok(())
    }

    async fn failed(&self) -> Error {
        self.inner.failed().await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
