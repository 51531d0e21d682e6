//! A storage with fewer abilities than the storage below it.

use std::sync::Arc;

use clock::Instant;
use istorage::{
    BatchLimits, Call, CallAnswer, Capabilities, Error, Result, SharedStorage, StorageWrapper,
    Write,
};

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
    pub fn of(inner: SharedStorage, rows: usize, ordered: bool) -> Arc<NarrowStorage> {
        Arc::new(NarrowStorage { inner, rows, ordered })
    }
}

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

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        match call {
            Call::Write(Write::If(_, ops)) if ops.len() > self.rows => {
                Err(Error::invalid(format!("{} rows at once are too many", ops.len())))
            }
            Call::Write(Write::Atomic(_)) => {
                Err(Error::invalid("nothing is written atomically here"))
            }
            call => call.send(&self.inner, deadline).await,
        }
    }
}
