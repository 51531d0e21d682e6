//! A storage with fewer abilities than the storage below it.

use std::sync::Arc;

use clock::Instant;
use istorage::{
    BatchLimits, Call, CallAnswer, Capabilities, Error, Result, SharedStorage, StorageWrapper,
    Write,
};

/// The steps that a group is written in.
#[derive(Clone, Copy, Debug)]
pub enum WriteSteps {
    /// This many rows in each step, on a storage without atomic writes. Ordered rows are written
    /// together, too.
    Of(usize),
    /// Like `Of`, but ordered rows are written one by one.
    OneByOne(usize),
    /// Like `Of`, on a storage with atomic writes that are too small for a group.
    BeyondAtomic(usize),
}

impl WriteSteps {
    /// Wraps a storage, so that it writes groups in these steps.
    #[must_use]
    pub fn of(self, storage: SharedStorage) -> SharedStorage {
        match self {
            WriteSteps::Of(rows) => NarrowStorage::of(storage, rows, true),
            WriteSteps::OneByOne(rows) => NarrowStorage::of(storage, rows, false),
            WriteSteps::BeyondAtomic(rows) => NarrowStorage::beyond_atomic(storage, rows),
        }
    }

    /// Returns the number of ordered rows of one storage partition that are written together.
    #[must_use]
    pub fn ordered_together(self) -> usize {
        match self {
            WriteSteps::Of(rows) | WriteSteps::BeyondAtomic(rows) => rows,
            WriteSteps::OneByOne(_) => 1,
        }
    }
}

/// A storage that writes only a few rows atomically. So groups are written in steps on every
/// driver.
#[derive(Debug)]
pub struct NarrowStorage {
    inner: SharedStorage,
    rows: usize,
    ordered: bool,
    /// The limits of an atomic write; `None` if the storage offers none.
    atomic: Option<BatchLimits>,
}

impl NarrowStorage {
    /// Wraps a storage. One call writes at most `rows` rows. Without `ordered`, ordered rows are
    /// written one by one.
    #[must_use]
    pub fn of(inner: SharedStorage, rows: usize, ordered: bool) -> Arc<NarrowStorage> {
        Arc::new(NarrowStorage { inner, rows, ordered, atomic: None })
    }

    /// Wraps a storage. The storage offers atomic writes, but every group is too large for one. So
    /// the rows are written in steps, and conditionally where the trust level demands it.
    #[must_use]
    pub fn beyond_atomic(inner: SharedStorage, rows: usize) -> Arc<NarrowStorage> {
        let atomic = Some(BatchLimits { rows: 0, bytes: 0 });
        Arc::new(NarrowStorage { inner, rows, ordered: true, atomic })
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
            atomic: self.atomic,
            conditional: limits,
            ordered: self.ordered.then_some(limits),
            ..inner
        }
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        match &call {
            Call::Write(Write::If(_, ops)) if ops.len() > self.rows => {
                Err(Error::invalid(format!("{} rows at once are too many", ops.len())))
            }
            Call::Write(Write::Atomic(_)) => {
                Err(Error::invalid("nothing is written atomically here"))
            }
            _ => call.send(&self.inner, deadline).await,
        }
    }
}
