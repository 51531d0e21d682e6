//! The calls of a storage as data, and their answers.

mod kind;
mod write;

use std::time::Duration;

use bytes::Bytes;
use clock::Instant;

pub use self::{kind::CallKind, write::Write};
use crate::{
    Consistency, ExpiringRowStream, FoundRow, Key, Outcome, Range, Result, RowStream, ServerTime,
    SharedStorage,
};

/// A call of [`AppStorage`](crate::AppStorage) that has one answer. A call whose answer is a stream
/// is a [`RangeRead`].
#[derive(Clone, Debug)]
pub enum Call<'a> {
    /// A [`get`](crate::AppStorage::get).
    Get(&'a Key, Consistency),
    /// A [`get_batch`](crate::AppStorage::get_batch).
    GetBatch(&'a [Key]),
    /// A [`get_values`](crate::AppStorage::get_values).
    GetValues(&'a [Key]),
    /// A write of any kind.
    Write(Write),
    /// A [`server_time`](crate::AppStorage::server_time).
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
            Call::GetValues(_) => CallKind::GetValues,
            Call::Write(write) => write.kind(),
            Call::ServerTime => CallKind::ServerTime,
        }
    }

    /// The number of rows that the call names.
    #[must_use]
    pub fn rows(&self) -> usize {
        match self {
            Call::Get(..) => 1,
            Call::GetBatch(keys) | Call::GetValues(keys) => keys.len(),
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
            Call::GetBatch(keys) => CallAnswer::Rows(storage.get_batch(keys, deadline).await?),
            Call::GetValues(keys) => CallAnswer::Values(storage.get_values(keys, deadline).await?),
            Call::Write(write) => CallAnswer::Outcome(write.send(storage, deadline).await?),
            Call::ServerTime => CallAnswer::ServerTime(storage.server_time(deadline).await?),
        })
    }
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

/// The answer to a [`Call`].
#[derive(Clone, Debug)]
pub enum CallAnswer {
    /// The answer to [`Call::Get`].
    Value(Option<Bytes>),
    /// The answer to [`Call::GetBatch`].
    Rows(Vec<Option<FoundRow>>),
    /// The answer to [`Call::GetValues`].
    Values(Vec<Option<Bytes>>),
    /// The answer to [`Call::Write`].
    Outcome(Outcome),
    /// The answer to [`Call::ServerTime`].
    ServerTime(Option<ServerTime>),
}

impl From<Outcome> for CallAnswer {
    fn from(outcome: Outcome) -> CallAnswer {
        CallAnswer::Outcome(outcome)
    }
}
