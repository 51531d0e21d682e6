//! The port: the operations that an election needs of a store.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use clock::Instant;

use crate::Seat;

/// A row of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElectionRow {
    /// The lease of a seat. It expires.
    Lease(Seat),
    /// The epoch of a seat. It never expires.
    Epoch(Seat),
}

/// A lease as a plain read shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedLease {
    /// The seat of the lease.
    pub seat: Seat,
    /// The bytes of the lease.
    pub value: Bytes,
    /// The approximate time until the lease expires, unless it is renewed. `Duration::MAX` if that
    /// time is not known: then the node only looks again after its usual pause.
    pub left: Duration,
}

/// The result of a conditional write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConditionalOutcome {
    /// The write was done.
    Done,
    /// The write was not done, and never will be, because the row holds these bytes (`None`: the
    /// row does not exist).
    Refused(Option<Bytes>),
}

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing was done. Try again later.
    #[error("the store is unavailable, and nothing was done")]
    Unavailable(#[source] Cause),
    /// The outcome is unknown: the write may be done, or may still be done later.
    #[error("the outcome of the call is unknown")]
    Unknown(#[source] Cause),
    /// Nothing was done, and another try will not help. The store is closed, or its content is not
    /// what it must be.
    #[error("permanent store error")]
    Broken(#[source] Cause),
}

/// The error of the store itself.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// A store with conditional writes and rows that can expire.
///
/// An implementation guarantees:
///
/// - Conditional writes are linearizable, and [`get`](TtlStore::get) sees each conditional write
///   that was answered before.
/// - The store never sends a request twice. A write that may have been done is
///   [`StoreError::Unknown`], and the election settles it.
/// - Calls keep their deadline. A call may be dropped before it is answered. Its write may still be
///   done, even later.
/// - A row with a TTL exists for at least the TTL after its write was *done*. The row is gone at
///   most [`expiry_delay`](TtlStore::expiry_delay) after the TTL. One clock judges both for all
///   nodes.
/// - A row that is gone is absent for every call, and can be inserted again.
/// - Only leases have a TTL.
/// - Where [`expiry_is_watched`](TtlStore::expiry_is_watched), each node judges by itself: a row is
///   gone for a node when the node has seen the row unchanged for its TTL.
///
/// `tck::elections` tests a store against this contract.
#[async_trait]
pub trait TtlStore: fmt::Debug + Send + Sync + 'static {
    /// Returns how long a row may still exist after its TTL, by the clock that judges.
    fn expiry_delay(&self) -> Duration;

    /// Returns whether each node judges the expiry of a row by itself. Then a row has expired for a
    /// node when the node has seen the row unchanged for its TTL.
    fn expiry_is_watched(&self) -> bool {
        false
    }

    /// Returns the leases of all seats that have one, in any order. The answer may be slightly
    /// outdated. A lease that has expired may still be in the answer for
    /// [`expiry_delay`](TtlStore::expiry_delay).
    async fn leases(&self, deadline: Instant) -> Result<Vec<ObservedLease>, StoreError>;

    /// Returns a row. The read sees every conditional write that was answered before.
    async fn get(&self, row: ElectionRow, deadline: Instant) -> Result<Option<Bytes>, StoreError>;

    /// Writes a row that does not exist.
    async fn insert_if_not_exists(
        &self,
        row: ElectionRow,
        value: Bytes,
        ttl: Option<Duration>,
        deadline: Instant,
    ) -> Result<ConditionalOutcome, StoreError>;

    /// Replaces a row that is as expected. A row with a TTL then exists for its whole TTL again,
    /// even if its value is the same.
    async fn compare_and_swap(
        &self,
        row: ElectionRow,
        old: Bytes,
        new: Bytes,
        ttl: Option<Duration>,
        deadline: Instant,
    ) -> Result<ConditionalOutcome, StoreError>;

    /// Deletes a row that is as expected.
    async fn compare_and_delete(
        &self,
        row: ElectionRow,
        old: Bytes,
        deadline: Instant,
    ) -> Result<ConditionalOutcome, StoreError>;
}
