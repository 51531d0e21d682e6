//! A storage with fewer abilities than the storage below it.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use clock::Instant;
use istorage::{
    AtomicBatch, BatchLimits, Capabilities, Conditional, Error, Outcome, Result, SharedStorage,
};

use crate::storage_wrapper::{StorageWrapper, WrappedStorage};

/// A storage that writes nothing atomically but a few conditional rows of one storage partition. So
/// groups are written in steps on every driver.
#[derive(Debug)]
pub struct NarrowStorage {
    inner: SharedStorage,
    rows: usize,
    ordered: bool,
}

impl NarrowStorage {
    /// Wraps a storage. One call writes at most `rows` rows. Without `ordered`, ordered rows are
    /// written one by one.
    #[must_use]
    pub fn of(
        inner: SharedStorage,
        rows: usize,
        ordered: bool,
    ) -> Arc<WrappedStorage<NarrowStorage>> {
        WrappedStorage::new(NarrowStorage { inner, rows, ordered })
    }
}

#[async_trait]
impl StorageWrapper for NarrowStorage {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

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
}
