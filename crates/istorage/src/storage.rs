//! The contract that drivers implement, and what callers get on top of it.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use clock::{Instant, WallTime};
use futures::{TryStreamExt, stream::BoxStream};

use crate::{
    AtomicBatch, Capabilities, Conditional, ExpiringRow, Key, OrderedPut, Outcome, Put, Range,
    Result, Row,
};

/// A storage that several owners share.
pub type SharedStorage = Arc<dyn AppStorage>;

/// Rows in order. It ends after the range's last row, or after the first error. It is lazy: a page is fetched when the
/// rows before it have been taken, so a partition of any size is read in bounded memory.
pub type RowStream = BoxStream<'static, Result<Row>>;

/// As [`RowStream`], with what is left of each row's life.
pub type ExpiringRowStream = BoxStream<'static, Result<ExpiringRow>>;

/// What a read must see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// Every plain and ordered write that was acknowledged, and every conditional write that was acknowledged.
    Plain,
    /// As `Plain`, and it takes part in the order of conditional writes: those in flight are finished or ruled out
    /// as far as the storage can. Only for rows that are written conditionally. Dearer.
    Linearizable,
}

/// A call of [`AppStorage`], for wrappers that tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// [`AppStorage::get`], plain.
    Get,
    /// [`AppStorage::get`], linearizable.
    GetLinearizable,
    /// [`AppStorage::get_batch`].
    GetBatch,
    /// [`AppStorage::read`], of either consistency, and [`AppStorage::ttl_read`].
    Read,
    /// [`AppStorage::put_batch`].
    PutBatch,
    /// [`AppStorage::put_ordered`].
    PutOrdered,
    /// [`AppStorage::write_if`].
    WriteIf,
    /// [`AppStorage::write_atomic`].
    WriteAtomic,
    /// [`AppStorage::server_time`].
    ServerTime,
}

impl Op {
    /// Every operation.
    pub const ALL: [Op; 9] = [
        Op::Get,
        Op::GetLinearizable,
        Op::GetBatch,
        Op::Read,
        Op::PutBatch,
        Op::PutOrdered,
        Op::WriteIf,
        Op::WriteAtomic,
        Op::ServerTime,
    ];

    /// Its name, as in the metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Op::Get => "get",
            Op::GetLinearizable => "get_linearizable",
            Op::GetBatch => "get_batch",
            Op::Read => "read",
            Op::PutBatch => "put_batch",
            Op::PutOrdered => "put_ordered",
            Op::WriteIf => "write_if",
            Op::WriteAtomic => "write_atomic",
            Op::ServerTime => "server_time",
        }
    }

    pub(crate) const fn of_get(consistency: Consistency) -> Op {
        match consistency {
            Consistency::Plain => Op::Get,
            Consistency::Linearizable => Op::GetLinearizable,
        }
    }
}

/// The time as the storage's servers see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerTime {
    /// At some moment between the call and its answer the time was not before this,
    pub at: WallTime,
    /// and not more than this later.
    pub uncertainty: Duration,
}

/// A keyspace of a wide-column store: `(partition key, clustering columns) -> value`, the rows of a partition sorted by
/// their clustering columns as unsigned bytes. Keys and values are any bytes; only the partition key may not be empty.
///
/// # Contract
///
/// **A row is always conditional, or always ordered, or always plain**, from its first write on. A mixture loses
/// acknowledged writes on stores that order plain writes by clocks. Only conditional rows can be deleted; plain ones do
/// not expire.
///
/// **Deadlines.** No call outlives its deadline. A call whose deadline has passed sends nothing and is `Unavailable`. Work
/// that was sent may still be done afterwards; a write is `OutcomeUnknown` then.
///
/// **Expiry.** A row that has expired is absent to every call: reads do not see it, an insert succeeds, a swap and a
/// delete fail. It never expires before the time asked for. All calls of one node agree on the moment; nodes may differ where
/// [`Capabilities::expiry_is_watched`] says so. Whether
/// an ordered row that has expired still supersedes a lower order is up to the storage.
///
/// **Nothing retries a conditional write** on its own, neither a driver nor what is below it.
///
/// # For implementers
///
/// Drivers do not check arguments, deadlines or use after close: they hand out their storage inside a
/// [`Guarded`](crate::Guarded), which does, so that the rules are in one place. Behind it a driver is never asked for
/// nothing (an empty batch), for a row twice in one call, or for bounds longer than the longest clustering columns. A
/// call may be dropped at any await; whatever was not sent by then must not happen later. A call that comes after
/// [`close`](AppStorage::close), or is overtaken by it, is `Closed`. No method may panic. Prove a driver with
/// `istorage-tck`.
///
/// # Cancel safety
///
/// Every call may be dropped. A write that is dropped after it was sent may happen in whole; the storage stays usable.
#[async_trait]
pub trait AppStorage: Send + Sync + fmt::Debug {
    /// What this storage can do, and its limits. Does not change.
    fn capabilities(&self) -> Capabilities;

    /// The value of a row; `None` if it does not exist.
    async fn get(
        &self,
        key: &Key,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<Option<Bytes>>;

    /// The values of any number of rows, in the order of `keys`, as [`Consistency::Plain`] reads them. Not a snapshot.
    async fn get_batch(&self, keys: &[Key], deadline: Instant) -> Result<Vec<Option<Bytes>>>;

    /// The rows of a range. Each page must arrive within `page_timeout` from the moment it is asked for; the time that
    /// the caller takes between rows does not count. Not a snapshot: a row that is written meanwhile may be seen or not.
    fn read(
        &self,
        pkey: Bytes,
        range: Range,
        consistency: Consistency,
        page_timeout: Duration,
    ) -> RowStream;

    /// As a plain [`read`](AppStorage::read), with what is left of each row's life.
    fn ttl_read(&self, pkey: Bytes, range: Range, page_timeout: Duration) -> ExpiringRowStream;

    /// Writes any number of rows of any partitions. Of several writes of one row the last counts. Not atomic: after an
    /// error any subset may be written, even later. Plain rows of several nodes are ordered by the nodes' clocks on some
    /// storages; rows that several nodes write should be ordered or conditional.
    async fn put_batch(&self, rows: Vec<Put>, deadline: Instant) -> Result<()>;

    /// Writes any number of rows so that of two writes of one row the one with the higher order stays, in whatever
    /// order they arrive. A superseded write is a success. Two writes of one row with equal orders and different values
    /// are the caller's error: it is unspecified which stays, and whether the call says `Invalid`; so are two of which one has
    /// a TTL. A write that is sent again with a TTL lives as long as the last of them asked for. What
    /// [`Capabilities::ordered`] promises is written atomically; otherwise, after an error, any subset may be written,
    /// even later.
    async fn put_ordered(&self, rows: Vec<OrderedPut>, deadline: Instant) -> Result<()>;

    /// Conditional writes in one partition, linearizable, all or nothing, in one round. No row may be named twice. With
    /// no operations it is applied.
    async fn write_if(
        &self,
        pkey: Bytes,
        ops: Vec<Conditional>,
        deadline: Instant,
    ) -> Result<Outcome>;

    /// Writes in any partitions, linearizable, all or nothing, if [`Capabilities::atomic`] offers it (`Invalid`
    /// otherwise). All conditions are checked before any row is written. Of plain writes of one row the last counts, of
    /// ordered ones the highest; no row may be named by two kinds or by two conditions.
    async fn write_atomic(&self, batch: AtomicBatch, deadline: Instant) -> Result<Outcome>;

    /// The time as the storage's servers see it; `None` if there is no server.
    async fn server_time(&self, deadline: Instant) -> Result<Option<ServerTime>>;

    /// Ends the use of this storage. Calls under way get their answers; later ones are `Closed`. May be called twice.
    async fn close(&self);
}

/// What callers use on top of [`AppStorage`]: each is one call of it.
#[async_trait]
pub trait AppStorageExt: AppStorage {
    /// The value of a row, as it takes part in the order of conditional writes. See [`Consistency::Linearizable`].
    async fn get_linearizable(&self, key: &Key, deadline: Instant) -> Result<Option<Bytes>> {
        self.get(key, Consistency::Linearizable, deadline).await
    }

    /// The rows of a range, each page as it takes part in the order of conditional writes.
    fn read_linearizable(&self, pkey: Bytes, range: Range, page_timeout: Duration) -> RowStream {
        self.read(pkey, range, Consistency::Linearizable, page_timeout)
    }

    /// Writes one row.
    async fn put(&self, key: Key, value: Bytes, deadline: Instant) -> Result<()> {
        self.put_batch(vec![Put { key, value }], deadline).await
    }

    /// Writes a row if it does not exist.
    async fn insert_if_not_exists(
        &self,
        key: Key,
        value: Bytes,
        ttl: Option<Duration>,
        deadline: Instant,
    ) -> Result<Outcome> {
        self.write_if(
            key.pkey,
            vec![Conditional::Insert { ccols: key.ccols, value, ttl }],
            deadline,
        )
        .await
    }

    /// Writes a row if it is equal to `old`.
    async fn compare_and_swap(
        &self,
        key: Key,
        old: Bytes,
        new: Bytes,
        ttl: Option<Duration>,
        deadline: Instant,
    ) -> Result<Outcome> {
        self.write_if(
            key.pkey,
            vec![Conditional::Swap { ccols: key.ccols, old, new, ttl }],
            deadline,
        )
        .await
    }

    /// Removes a row if it is equal to `old`.
    async fn compare_and_delete(&self, key: Key, old: Bytes, deadline: Instant) -> Result<Outcome> {
        self.write_if(key.pkey, vec![Conditional::Delete { ccols: key.ccols, old }], deadline).await
    }

    /// A row with what is left of its life; `None` if it does not exist.
    async fn ttl_get(&self, key: &Key, timeout: Duration) -> Result<Option<ExpiringRow>> {
        self.ttl_read(key.pkey.clone(), Range::only(&key.ccols), timeout).try_next().await
    }

    /// What is left of a row's life: `None` if the row does not exist, `Some(None)` if it does not expire.
    async fn query_ttl(&self, key: &Key, timeout: Duration) -> Result<Option<Option<Duration>>> {
        Ok(self.ttl_get(key, timeout).await?.map(|row| row.ttl))
    }
}

impl<S: AppStorage + ?Sized> AppStorageExt for S {}
