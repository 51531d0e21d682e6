//! Storages around another storage.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use clock::Instant;

use crate::{
    AppStorage, AtomicBatch, Call, CallAnswer, Capabilities, Conditional, Consistency,
    ExpiringRowStream, FoundRow, Key, OrderedPut, Outcome, PartitionStream, Put, Range, RangeRead,
    Result, RowStream, ServerTime, SharedStorage, Write,
};

/// A storage around another storage, which sees each call as data.
///
/// Every `StorageWrapper` is an [`AppStorage`]. By default, each method passes its call on. So an
/// implementation has only the methods that it changes. It may change a call, make it late, twice
/// or not at all, and change the answer.
///
/// ```
/// use clock::Instant;
/// use istorage::{Call, CallAnswer, Error, Result, SharedStorage, StorageWrapper, Write};
///
/// /// A storage that refuses writes of more than ten rows.
/// #[derive(Debug)]
/// struct SmallWrites(SharedStorage);
///
/// impl StorageWrapper for SmallWrites {
///     fn inner(&self) -> &SharedStorage {
///         &self.0
///     }
///
///     async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
///         match call {
///             Call::Write(write) if write.rows() > 10 => Err(Error::invalid("too many rows")),
///             call => call.send(self.inner(), deadline).await,
///         }
///     }
/// }
/// ```
pub trait StorageWrapper: Send + Sync + fmt::Debug {
    /// The storage inside.
    fn inner(&self) -> &SharedStorage;

    /// As [`AppStorage::capabilities`].
    fn capabilities(&self) -> Capabilities {
        self.inner().capabilities()
    }

    /// Any call that has one answer. The answer must be of the kind of the call, for example
    /// [`CallAnswer::Value`] for [`Call::Get`]. Otherwise the method of [`AppStorage`] panics.
    fn call(
        &self,
        call: Call<'_>,
        deadline: Instant,
    ) -> impl Future<Output = Result<CallAnswer>> + Send {
        call.send(self.inner(), deadline)
    }

    /// As [`AppStorage::read`].
    fn read(&self, read: RangeRead) -> RowStream {
        read.send(self.inner())
    }

    /// As [`AppStorage::ttl_read`].
    fn ttl_read(&self, read: RangeRead) -> ExpiringRowStream {
        read.send_with_ttl(self.inner())
    }

    /// As [`AppStorage::partitions`].
    fn partitions(&self, prefix: Bytes, page_timeout: Duration) -> PartitionStream {
        self.inner().partitions(prefix, page_timeout)
    }

    /// As [`AppStorage::close`].
    fn close(&self) -> impl Future<Output = ()> + Send {
        self.inner().close()
    }
}

/// The outcome of a write.
async fn write<W: StorageWrapper>(wrapper: &W, write: Write, deadline: Instant) -> Result<Outcome> {
    match wrapper.call(Call::Write(write), deadline).await? {
        CallAnswer::Outcome(outcome) => Ok(outcome),
        other => wrong_kind(wrapper, &other),
    }
}

fn wrong_kind(wrapper: &dyn fmt::Debug, answer: &CallAnswer) -> ! {
    let kind = match answer {
        CallAnswer::Value(_) => "Value",
        CallAnswer::Rows(_) => "Rows",
        CallAnswer::Values(_) => "Values",
        CallAnswer::Outcome(_) => "Outcome",
        CallAnswer::ServerTime(_) => "ServerTime",
    };
    panic!("the wrapper {wrapper:?} gave the answer `{kind}` to a call of another kind")
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<W: StorageWrapper> AppStorage for W {
    fn capabilities(&self) -> Capabilities {
        StorageWrapper::capabilities(self)
    }

    async fn get(
        &self,
        key: &Key,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<Option<Bytes>> {
        match self.call(Call::Get(key, consistency), deadline).await? {
            CallAnswer::Value(value) => Ok(value),
            other => wrong_kind(self, &other),
        }
    }

    async fn get_batch(&self, keys: &[Key], deadline: Instant) -> Result<Vec<Option<FoundRow>>> {
        match self.call(Call::GetBatch(keys), deadline).await? {
            CallAnswer::Rows(rows) => Ok(rows),
            other => wrong_kind(self, &other),
        }
    }

    async fn get_values(&self, keys: &[Key], deadline: Instant) -> Result<Vec<Option<Bytes>>> {
        match self.call(Call::GetValues(keys), deadline).await? {
            CallAnswer::Values(values) => Ok(values),
            other => wrong_kind(self, &other),
        }
    }

    fn read(
        &self,
        pkey: Bytes,
        range: Range,
        consistency: Consistency,
        page_timeout: Duration,
    ) -> RowStream {
        StorageWrapper::read(self, RangeRead { pkey, range, consistency, page_timeout })
    }

    fn ttl_read(&self, pkey: Bytes, range: Range, page_timeout: Duration) -> ExpiringRowStream {
        let consistency = Consistency::Plain;
        StorageWrapper::ttl_read(self, RangeRead { pkey, range, consistency, page_timeout })
    }

    fn partitions(&self, prefix: Bytes, page_timeout: Duration) -> PartitionStream {
        StorageWrapper::partitions(self, prefix, page_timeout)
    }

    async fn put_batch(&self, rows: Vec<Put>, deadline: Instant) -> Result<()> {
        write(self, Write::PutBatch(rows), deadline).await.map(drop)
    }

    async fn put_ordered(&self, rows: Vec<OrderedPut>, deadline: Instant) -> Result<()> {
        write(self, Write::PutOrdered(rows), deadline).await.map(drop)
    }

    async fn write_if(
        &self,
        pkey: Bytes,
        ops: Vec<Conditional>,
        deadline: Instant,
    ) -> Result<Outcome> {
        write(self, Write::If(pkey, ops), deadline).await
    }

    async fn write_atomic(&self, batch: AtomicBatch, deadline: Instant) -> Result<Outcome> {
        write(self, Write::Atomic(batch), deadline).await
    }

    async fn server_time(&self, deadline: Instant) -> Result<Option<ServerTime>> {
        match self.call(Call::ServerTime, deadline).await? {
            CallAnswer::ServerTime(time) => Ok(time),
            other => wrong_kind(self, &other),
        }
    }

    async fn close(&self) {
        StorageWrapper::close(self).await;
    }
}
