//! The calls of a storage as data, and their answers.

use std::time::Duration;

use bytes::Bytes;
use clock::Instant;

use crate::{
    AtomicBatch, Conditional, Consistency, ExpiringRowStream, Key, OrderedPut, Outcome, Put, Range,
    Result, RowStream, ServerTime, SharedStorage,
};

/// A call of [`AppStorage`](crate::AppStorage) that has one answer. A call whose answer is a stream
/// is a [`RangeRead`].
#[derive(Clone, Debug)]
pub enum Call<'a> {
    /// A [`get`](crate::AppStorage::get).
    Get(&'a Key, Consistency),
    /// A [`get_batch`](crate::AppStorage::get_batch).
    GetBatch(&'a [Key]),
    /// A write of any kind.
    Write(Write),
    /// A [`server_time`](crate::AppStorage::server_time).
    ServerTime,
}

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

/// A [`read`](crate::AppStorage::read) or a [`ttl_read`](crate::AppStorage::ttl_read) of a range.
#[derive(Clone, Debug)]
pub struct RangeRead {
    /// The partition key.
    pub pkey: Bytes,
    /// The range of the rows in the partition.
    pub range: Range,
    /// The writes that the read must see. A `ttl_read` is always plain.
    pub consistency: Consistency,
    /// The longest time for each page.
    pub page_timeout: Duration,
}

/// The answer to a [`Call`].
#[derive(Clone, Debug)]
pub enum CallAnswer {
    /// The answer to [`Call::Get`].
    Value(Option<Bytes>),
    /// The answer to [`Call::GetBatch`].
    Values(Vec<Option<Bytes>>),
    /// The answer to [`Call::Write`].
    Outcome(Outcome),
    /// The answer to [`Call::ServerTime`].
    ServerTime(Option<ServerTime>),
}

/// The kind of a call of [`AppStorage`](crate::AppStorage). Wrappers tell calls apart by their kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// A plain [`get`](crate::AppStorage::get).
    Get,
    /// A linearizable [`get`](crate::AppStorage::get).
    GetLinearizable,
    /// [`get_batch`](crate::AppStorage::get_batch).
    GetBatch,
    /// [`read`](crate::AppStorage::read) of either consistency, and
    /// [`ttl_read`](crate::AppStorage::ttl_read).
    Read,
    /// [`put_batch`](crate::AppStorage::put_batch).
    PutBatch,
    /// [`put_ordered`](crate::AppStorage::put_ordered).
    PutOrdered,
    /// [`write_if`](crate::AppStorage::write_if).
    WriteIf,
    /// [`write_atomic`](crate::AppStorage::write_atomic).
    WriteAtomic,
    /// [`server_time`](crate::AppStorage::server_time).
    ServerTime,
}

impl Call<'_> {
    /// The kind of the call.
    #[must_use]
    pub fn kind(&self) -> CallKind {
        match self {
            Call::Get(_, Consistency::Plain) => CallKind::Get,
            Call::Get(_, Consistency::Linearizable) => CallKind::GetLinearizable,
            Call::GetBatch(_) => CallKind::GetBatch,
            Call::Write(write) => write.kind(),
            Call::ServerTime => CallKind::ServerTime,
        }
    }

    /// The number of rows that the call names.
    #[must_use]
    pub fn rows(&self) -> usize {
        match self {
            Call::Get(..) => 1,
            Call::GetBatch(keys) => keys.len(),
            Call::Write(write) => write.rows(),
            Call::ServerTime => 0,
        }
    }

    /// Makes the call.
    ///
    /// # Errors
    /// The error of the storage.
    pub async fn send(self, storage: &SharedStorage, deadline: Instant) -> Result<CallAnswer> {
        Ok(match self {
            Call::Get(key, consistency) => {
                CallAnswer::Value(storage.get(key, consistency, deadline).await?)
            }
            Call::GetBatch(keys) => CallAnswer::Values(storage.get_batch(keys, deadline).await?),
            Call::Write(write) => CallAnswer::Outcome(write.send(storage, deadline).await?),
            Call::ServerTime => CallAnswer::ServerTime(storage.server_time(deadline).await?),
        })
    }
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

impl RangeRead {
    /// Makes the call [`read`](crate::AppStorage::read).
    pub fn send(self, storage: &SharedStorage) -> RowStream {
        storage.read(self.pkey, self.range, self.consistency, self.page_timeout)
    }

    /// Makes the call [`ttl_read`](crate::AppStorage::ttl_read).
    pub fn send_with_ttl(self, storage: &SharedStorage) -> ExpiringRowStream {
        storage.ttl_read(self.pkey, self.range, self.page_timeout)
    }
}

impl From<Outcome> for CallAnswer {
    fn from(outcome: Outcome) -> CallAnswer {
        CallAnswer::Outcome(outcome)
    }
}

impl CallKind {
    /// All kinds of calls.
    pub const ALL: [CallKind; 9] = [
        CallKind::Get,
        CallKind::GetLinearizable,
        CallKind::GetBatch,
        CallKind::Read,
        CallKind::PutBatch,
        CallKind::PutOrdered,
        CallKind::WriteIf,
        CallKind::WriteAtomic,
        CallKind::ServerTime,
    ];

    /// The name of the kind, which is the label `op` of the metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            CallKind::Get => "get",
            CallKind::GetLinearizable => "get_linearizable",
            CallKind::GetBatch => "get_batch",
            CallKind::Read => "read",
            CallKind::PutBatch => "put_batch",
            CallKind::PutOrdered => "put_ordered",
            CallKind::WriteIf => "write_if",
            CallKind::WriteAtomic => "write_atomic",
            CallKind::ServerTime => "server_time",
        }
    }
}
