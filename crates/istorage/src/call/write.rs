//! The calls that write rows.

use bytes::Bytes;
use clock::Instant;

use super::CallKind;
use crate::{AtomicBatch, Conditional, OrderedPut, Outcome, Put, Result, SharedStorage};

/// A call of [`AppStorage`](crate::AppStorage) that writes rows.
#[derive(Clone, Debug)]
pub enum Write {
    /// A [`put_batch`](crate::AppStorage::put_batch).
    PutBatch(Vec<Put>),
    /// A [`put_ordered`](crate::AppStorage::put_ordered).
    PutOrdered(Vec<OrderedPut>),
    /// A [`write_if`](crate::AppStorage::write_if): the partition key and the operations.
    If(Bytes, Vec<Conditional>),
    /// A [`write_atomic`](crate::AppStorage::write_atomic).
    Atomic(AtomicBatch),
}

impl Write {
    /// The kind of the call.
    #[must_use]
    pub fn kind(&self) -> CallKind {
        match self {
            Write::PutBatch(_) => CallKind::PutBatch,
            Write::PutOrdered(_) => CallKind::PutOrdered,
            Write::If(..) => CallKind::WriteIf,
            Write::Atomic(_) => CallKind::WriteAtomic,
        }
    }

    /// The number of rows to write.
    #[must_use]
    pub fn rows(&self) -> usize {
        match self {
            Write::PutBatch(rows) => rows.len(),
            Write::PutOrdered(rows) => rows.len(),
            Write::If(_, ops) => ops.len(),
            Write::Atomic(batch) => {
                batch.conditionals.len() + batch.ordered.len() + batch.puts.len()
            }
        }
    }

    /// Makes the call. The outcome of a plain or ordered batch is always [`Outcome::Applied`].
    ///
    /// # Errors
    /// The error of the storage.
    pub async fn send(self, storage: &SharedStorage, deadline: Instant) -> Result<Outcome> {
        match self {
            Write::PutBatch(rows) => storage.put_batch(rows, deadline).await?,
            Write::PutOrdered(rows) => storage.put_ordered(rows, deadline).await?,
            Write::If(pkey, ops) => return storage.write_if(pkey, ops, deadline).await,
            Write::Atomic(batch) => return storage.write_atomic(batch, deadline).await,
        }
        Ok(Outcome::Applied)
    }
}
