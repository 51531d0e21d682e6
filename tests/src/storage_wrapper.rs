//! Wrappers that stand between a node and its storage and change some calls.

use std::{fmt, ops::Deref, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use clock::Instant;
use istorage::{
    AppStorage, AtomicBatch, Capabilities, Conditional, Consistency, ExpiringRowStream, Key,
    OrderedPut, Outcome, Put, Range, Result, RowStream, ServerTime, SharedStorage,
};

/// A wrapper around a storage. The default methods pass each call on; an implementation overrides
/// some of them.
#[async_trait]
pub trait StorageWrapper: fmt::Debug + Send + Sync + 'static {
    /// The wrapped storage.
    fn inner(&self) -> &SharedStorage;

    /// As [`AppStorage::capabilities`].
    fn capabilities(&self) -> Capabilities {
        self.inner().capabilities()
    }

    /// As [`AppStorage::get`].
    async fn get(
        &self,
        key: &Key,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<Option<Bytes>> {
        self.inner().get(key, consistency, deadline).await
    }

    /// As [`AppStorage::get_batch`].
    async fn get_batch(&self, keys: &[Key], deadline: Instant) -> Result<Vec<Option<Bytes>>> {
        self.inner().get_batch(keys, deadline).await
    }

    /// As [`AppStorage::read`].
    fn read(
        &self,
        pkey: Bytes,
        range: Range,
        consistency: Consistency,
        page_timeout: Duration,
    ) -> RowStream {
        self.inner().read(pkey, range, consistency, page_timeout)
    }

    /// As [`AppStorage::put_ordered`].
    async fn put_ordered(&self, rows: Vec<OrderedPut>, deadline: Instant) -> Result<()> {
        self.inner().put_ordered(rows, deadline).await
    }

    /// As [`AppStorage::write_if`].
    async fn write_if(
        &self,
        pkey: Bytes,
        ops: Vec<Conditional>,
        deadline: Instant,
    ) -> Result<Outcome> {
        self.inner().write_if(pkey, ops, deadline).await
    }

    /// As [`AppStorage::write_atomic`].
    async fn write_atomic(&self, batch: AtomicBatch, deadline: Instant) -> Result<Outcome> {
        self.inner().write_atomic(batch, deadline).await
    }
}

/// A storage with a wrapper that each call goes through.
#[derive(Debug)]
pub struct WrappedStorage<B>(B);

impl<B: StorageWrapper> WrappedStorage<B> {
    /// Puts a wrapper around its inner storage.
    pub fn new(wrapper: B) -> Arc<WrappedStorage<B>> {
        Arc::new(WrappedStorage(wrapper))
    }
}

/// Gives access to the wrapper.
impl<B> Deref for WrappedStorage<B> {
    type Target = B;

    fn deref(&self) -> &B {
        &self.0
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<B: StorageWrapper> AppStorage for WrappedStorage<B> {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn get(
        &self,
        key: &Key,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<Option<Bytes>> {
        self.0.get(key, consistency, deadline).await
    }

    async fn get_batch(&self, keys: &[Key], deadline: Instant) -> Result<Vec<Option<Bytes>>> {
        self.0.get_batch(keys, deadline).await
    }

    fn read(
        &self,
        pkey: Bytes,
        range: Range,
        consistency: Consistency,
        page_timeout: Duration,
    ) -> RowStream {
        self.0.read(pkey, range, consistency, page_timeout)
    }

    fn ttl_read(&self, pkey: Bytes, range: Range, page_timeout: Duration) -> ExpiringRowStream {
        self.0.inner().ttl_read(pkey, range, page_timeout)
    }

    async fn put_batch(&self, rows: Vec<Put>, deadline: Instant) -> Result<()> {
        self.0.inner().put_batch(rows, deadline).await
    }

    async fn put_ordered(&self, rows: Vec<OrderedPut>, deadline: Instant) -> Result<()> {
        self.0.put_ordered(rows, deadline).await
    }

    async fn write_if(
        &self,
        pkey: Bytes,
        ops: Vec<Conditional>,
        deadline: Instant,
    ) -> Result<Outcome> {
        self.0.write_if(pkey, ops, deadline).await
    }

    async fn write_atomic(&self, batch: AtomicBatch, deadline: Instant) -> Result<Outcome> {
        self.0.write_atomic(batch, deadline).await
    }

    async fn server_time(&self, deadline: Instant) -> Result<Option<ServerTime>> {
        self.0.inner().server_time(deadline).await
    }

    async fn close(&self) {
        self.0.inner().close().await;
    }
}
