//! Drivers that wrap the storages of another driver.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use clock::Instant;

use crate::{BackupStream, Error, KeyspaceName, Result, SharedStorage, StorageDriver};

type Wrap = Box<dyn Fn(SharedStorage) -> SharedStorage + Send + Sync>;

/// A driver that wraps each storage it opens, for example in [`Metered`](crate::Metered).
pub struct WrappedDriver {
    inner: Arc<dyn StorageDriver>,
    wrap: Wrap,
}

impl WrappedDriver {
    /// Wraps the storages of `inner`.
    pub fn new(
        inner: Arc<dyn StorageDriver>,
        wrap: impl Fn(SharedStorage) -> SharedStorage + Send + Sync + 'static,
    ) -> WrappedDriver {
        WrappedDriver { inner, wrap: Box::new(wrap) }
    }
}

impl fmt::Debug for WrappedDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WrappedDriver").field("inner", &self.inner).finish_non_exhaustive()
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl StorageDriver for WrappedDriver {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    async fn create(&self, keyspace: &KeyspaceName, deadline: Instant) -> Result<()> {
        self.inner.create(keyspace, deadline).await
    }

    async fn open(
        &self,
        keyspace: &KeyspaceName,
        deadline: Instant,
    ) -> Result<Option<SharedStorage>> {
        let storage = self.inner.open(keyspace, deadline).await?;
        Ok(storage.map(|storage| (self.wrap)(storage)))
    }

    async fn drop_keyspace(&self, keyspace: &KeyspaceName, deadline: Instant) -> Result<()> {
        self.inner.drop_keyspace(keyspace, deadline).await
    }

    async fn backup(&self, until: Instant) -> Result<Option<BackupStream>> {
        self.inner.backup(until).await
    }

    async fn failed(&self) -> Error {
        self.inner.failed().await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
