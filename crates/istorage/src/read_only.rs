//! Storages that read and never write.

use std::sync::Arc;

use async_trait::async_trait;
use clock::Instant;

use crate::{
    BackupStream, Call, CallAnswer, Consistency, Error, KeyspaceName, RangeRead, Result, RowStream,
    SharedStorage, StorageDriver, StorageWrapper,
};

/// A driver that opens the keyspaces of another driver for reading. It makes and drops no keyspace,
/// and its storages refuse every write as `Invalid` before anything is sent.
///
/// All reads are [`Plain`](Consistency::Plain): a linearizable read may finish the write of another
/// node, which is a write, too.
#[derive(Debug)]
pub struct ReadOnlyDriver {
    inner: Arc<dyn StorageDriver>,
}

impl ReadOnlyDriver {
    /// Reads with `inner`.
    pub fn new(inner: Arc<dyn StorageDriver>) -> ReadOnlyDriver {
        ReadOnlyDriver { inner }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl StorageDriver for ReadOnlyDriver {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    async fn create(&self, keyspace: &KeyspaceName, _: Instant) -> Result<()> {
        Err(Error::invalid(format!(
            "the keyspace `{keyspace}` does not exist, and the storage is open for reading only"
        )))
    }

    async fn open(
        &self,
        keyspace: &KeyspaceName,
        deadline: Instant,
    ) -> Result<Option<SharedStorage>> {
        let storage = self.inner.open(keyspace, deadline).await?;
        Ok(storage.map(|inner| Arc::new(ReadOnly { inner }) as _))
    }

    async fn drop_keyspace(&self, _: &KeyspaceName, _: Instant) -> Result<()> {
        Err(refused())
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

/// A storage that refuses writes.
#[derive(Debug)]
struct ReadOnly {
    inner: SharedStorage,
}

impl StorageWrapper for ReadOnly {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        let call = match call {
            Call::Write(_) => return Err(refused()),
            Call::Get(key, _) => Call::Get(key, Consistency::Plain),
            call => call,
        };
        call.send(&self.inner, deadline).await
    }

    fn read(&self, read: RangeRead) -> RowStream {
        RangeRead { consistency: Consistency::Plain, ..read }.send(&self.inner)
    }
}

fn refused() -> Error {
    Error::invalid("nothing was written: the storage is open for reading only")
}
