//! A storage that can less than the one below it.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use clock::Instant;
use istorage::{
    AppStorage, AtomicBatch, BatchLimits, Capabilities, Conditional, Consistency, Error,
    ExpiringRowStream, Key, OrderedPut, Outcome, Put, Range, Result, RowStream, ServerTime,
    SharedStorage,
};

/// A storage that writes nothing atomically but a few conditional rows of one partition, so that groups are written in steps on every
/// driver.
#[derive(Debug)]
pub struct Narrow {
    inner: SharedStorage,
    rows: usize,
    ordered: bool,
}

impl Narrow {
    /// At most so many rows at once; ordered ones only one by one, if `ordered` is not set.
    #[must_use]
    pub fn new(inner: SharedStorage, rows: usize, ordered: bool) -> Arc<Narrow> {
        Arc::new(Narrow { inner, rows, ordered })
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl AppStorage for Narrow {
    fn capabilities(&self) -> Capabilities {
        let inner = self.inner.capabilities();
        let limits = BatchLimits { rows: self.rows, bytes: inner.conditional.bytes };
        Capabilities {
            atomic: None,
            conditional: limits,
            ordered: self.ordered.then_some(limits),
            ..inner
        }
    }

    async fn get(
        &self,
        key: &Key,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<Option<Bytes>> {
        self.inner.get(key, consistency, deadline).await
    }

    async fn get_batch(&self, keys: &[Key], deadline: Instant) -> Result<Vec<Option<Bytes>>> {
        self.inner.get_batch(keys, deadline).await
    }

    fn read(
        &self,
        pkey: Bytes,
        range: Range,
        consistency: Consistency,
        page_timeout: Duration,
    ) -> RowStream {
        self.inner.read(pkey, range, consistency, page_timeout)
    }

    fn ttl_read(&self, pkey: Bytes, range: Range, page_timeout: Duration) -> ExpiringRowStream {
        self.inner.ttl_read(pkey, range, page_timeout)
    }

    async fn put_batch(&self, rows: Vec<Put>, deadline: Instant) -> Result<()> {
        self.inner.put_batch(rows, deadline).await
    }

    async fn put_ordered(&self, rows: Vec<OrderedPut>, deadline: Instant) -> Result<()> {
        self.inner.put_ordered(rows, deadline).await
    }

    async fn write_if(
        &self,
        pkey: Bytes,
        ops: Vec<Conditional>,
        deadline: Instant,
    ) -> Result<Outcome> {
        if ops.len() > self.rows {
            return Err(Error::invalid(format!("{} rows at once are too many", ops.len())));
        }
        self.inner.write_if(pkey, ops, deadline).await
    }

    async fn write_atomic(&self, _batch: AtomicBatch, _deadline: Instant) -> Result<Outcome> {
        Err(Error::invalid("nothing is written atomically here"))
    }

    async fn server_time(&self, deadline: Instant) -> Result<Option<ServerTime>> {
        self.inner.server_time(deadline).await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
