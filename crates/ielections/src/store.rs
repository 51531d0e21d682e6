//! The port: what an election needs of a store.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use clock::Instant;

use crate::Slot;

/// A row of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Row {
    /// The lease of a slot: it expires.
    Lease(Slot),
    /// The epoch of a slot: it never expires.
    Epoch(Slot),
}

/// A lease as a plain read shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Of this slot.
    pub slot: Slot,
    /// Its bytes.
    pub value: Bytes,
    /// When it expires unless it is renewed, about; `Duration::MAX` if that is not known: then it is only looked at again.
    pub left: Duration,
}

/// What became of a conditional write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// It was done.
    Done,
    /// It was not done, and never will be, because this stands there (`None`: nothing).
    Refused(Option<Bytes>),
}

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing was done. Try later.
    #[error("the store is out of reach, and nothing was done")]
    Unavailable(#[source] Cause),
    /// It may be done, or may still be.
    #[error("whether it was done is not known")]
    Unknown(#[source] Cause),
    /// Nothing was done, and trying again will not help: the store is closed, or not what it should be.
    #[error("the store refuses to work")]
    Broken(#[source] Cause),
}

/// What the store itself said.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// A store with conditional writes, in which rows can expire. What is to be true of one:
///
/// - Conditional writes are linearizable, and [`get`](TtlStore::get) sees each that was answered before.
/// - Nothing is ever sent twice: a write that may have been done is [`StoreError::Unknown`], and the election settles it.
/// - Calls keep to their deadline. A call may be dropped before it is answered; what it wrote may then be done nevertheless,
///   also later.
/// - A row with a TTL is there for at least that long after its write was *done*, and is gone
///   [`expiry_delay`](TtlStore::expiry_delay) after that at the latest, by the one clock that judges, whoever asks. What is gone is absent to every
///   call, and can be inserted again. TTLs are given for leases, and for nothing else. Where
///   [`expiry_is_watched`](TtlStore::expiry_is_watched), a row is gone for a node when the node has seen the row unchanged for its TTL.
///
/// [`suite`](crate::suite) says whether it is so.
#[async_trait]
pub trait TtlStore: fmt::Debug + Send + Sync + 'static {
    /// A row is gone at the latest this long after its time, by the clock that judges.
    fn expiry_delay(&self) -> Duration;

    /// Each node judges by itself whether a row has expired, by having seen the row unchanged for its TTL.
    fn expiry_is_watched(&self) -> bool {
        false
    }

    /// The leases of all slots that have one, in any order. They may be somewhat outdated, and one that has expired may still be
    /// among them for [`expiry_delay`](TtlStore::expiry_delay).
    async fn leases(&self, deadline: Instant) -> Result<Vec<Seen>, StoreError>;

    /// A row. It sees every conditional write that was answered before.
    async fn get(&self, row: Row, deadline: Instant) -> Result<Option<Bytes>, StoreError>;

    /// Writes a row that is not there.
    async fn insert_if_not_exist(
        &self,
        row: Row,
        value: Bytes,
        ttl: Option<Duration>,
        deadline: Instant,
    ) -> Result<Written, StoreError>;

    /// Writes a row that is as expected. A row with a TTL lives for all of it again, even if its value is the same.
    async fn compare_and_swap(
        &self,
        row: Row,
        old: Bytes,
        new: Bytes,
        ttl: Option<Duration>,
        deadline: Instant,
    ) -> Result<Written, StoreError>;

    /// Removes a row that is as expected.
    async fn compare_and_delete(
        &self,
        row: Row,
        old: Bytes,
        deadline: Instant,
    ) -> Result<Written, StoreError>;
}
