//! The contract that drivers implement.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use clock::{Instant, WallTime};
use futures::stream::BoxStream;

use crate::{
    AtomicBatch, Capabilities, Conditional, ExpiringRow, FoundRow, Key, OrderedPut, Outcome, Put,
    Range, Result, Row,
};

/// A storage with several owners.
pub type SharedStorage = Arc<dyn AppStorage>;

/// The rows of a range, in order. The stream ends after the last row of the range, or after the
/// first error. The stream is lazy: it fetches a page after the caller has taken the rows before.
/// So a partition of any size is read in bounded memory.
pub type RowStream = BoxStream<'static, Result<Row>>;

/// A [`RowStream`] that also has the remaining TTL of each row.
pub type ExpiringRowStream = BoxStream<'static, Result<ExpiringRow>>;

/// The keys of partitions. The stream is lazy, as a [`RowStream`] is.
pub type PartitionStream = BoxStream<'static, Result<Bytes>>;

/// The writes that a read must see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// The read sees every plain, ordered and conditional write that was acknowledged. Each later
    /// read sees the row that this read returned, or a later write, even if that row was never
    /// acknowledged.
    Plain,
    /// Like `Plain`, and the read takes part in the order of conditional writes: as far as the
    /// storage can, the read finishes the writes in flight or rules them out. It costs more than a
    /// `Plain` read, and is needed only where conditional writes may be in flight.
    ///
    /// Later reads need not see a plain or an ordered write that was never acknowledged, although
    /// this read returned it. Write such a row again, or read it plainly, before you rely on it.
    Linearizable,
}

/// The time by the clock of the storage's servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerTime {
    /// At some moment between the call and its answer, the servers' time was not before `at`.
    pub at: WallTime,
    /// At that same moment, the servers' time was at most this much later than `at`.
    pub uncertainty: Duration,
}

/// A keyspace of a wide-column store: `(partition key, clustering columns) -> value`.
///
/// In this crate a *partition* is a storage partition: all rows with one partition key. The rows of
/// a partition are sorted by their clustering columns as unsigned bytes. Keys and values may be any
/// bytes, but the partition key must not be empty.
///
/// # Contract
///
/// **A plain row is always plain**, from its first write on: a mixture loses acknowledged writes on
/// stores that order plain writes by clocks. Plain rows do not expire. A row is deleted by a
/// conditional write, whatever its kind.
///
/// **Ordered writes lie below all others.** A row that was written plainly or conditionally hides
/// every ordered write of the row: the ordered write is a success, and the row stays. A conditional
/// write compares the value of a row of any kind, and the row is conditional from then on. So an
/// ordered row may become conditional, and never becomes ordered again. A deleted row may hide
/// ordered writes, too: the contract does not say whether they are visible.
/// [`get_batch`](AppStorage::get_batch) tells whether a row hides ordered writes.
///
/// **Deadlines.** No call outlives its deadline. A call with a deadline that has passed sends
/// nothing and is `Unavailable`. Work that was sent may still be done after the deadline. A write
/// is then `OutcomeUnknown`.
///
/// **Expiry.** A row that has expired is absent to every call: reads do not see the row, an insert
/// succeeds, a swap and a delete fail. A row never expires before the time asked for. All calls of
/// one node agree on the moment of expiry. Two nodes may differ if
/// [`Capabilities::expiry_is_watched`] is set. An ordered row that has expired may still supersede
/// a write with a lower order. The contract leaves this choice to the storage.
///
/// **What an error says about the rows of a write:**
///
/// | kind | [`write_if`](AppStorage::write_if), [`write_atomic`](AppStorage::write_atomic) | [`put_batch`](AppStorage::put_batch), [`put_ordered`](AppStorage::put_ordered) |
/// |---|---|---|
/// | `Unavailable` | nothing is written, now or later | any subset is written, even later |
/// | `OutcomeUnknown` | all rows or none, even later | any subset, even later |
/// | `Invalid`, `Closed` | nothing | nothing |
///
/// **Nothing retries a conditional write** on its own: neither a driver nor a layer below the
/// driver.
///
/// # For implementers
///
/// Drivers do not check arguments, deadlines or use after close. A driver hands out its storage
/// inside a [`Guarded`](crate::Guarded), which checks all three, so that the rules are in one
/// place. Behind the guard, a driver is never called with an empty batch, with a row twice in one
/// call, or with bounds longer than the longest clustering columns. A call may be dropped at any
/// await. Work that was not sent before the drop must not happen later. A call that comes after
/// [`close`](AppStorage::close), or that the close overtakes, is `Closed`. No method of a driver
/// may panic. Prove a driver with `tck::storage`. A storage around another storage implements
/// [`StorageWrapper`](crate::StorageWrapper) instead of this trait.
///
/// # Cancel safety
///
/// Every call may be dropped. A write that is dropped after it was sent may happen in whole. The
/// storage stays usable.
#[async_trait]
pub trait AppStorage: Send + Sync + fmt::Debug {
    /// The abilities and limits of this storage. They do not change.
    fn capabilities(&self) -> Capabilities;

    /// Reads the value of a row, `None` if the row does not exist.
    async fn get(
        &self,
        key: &Key,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<Option<Bytes>>;

    /// Reads any number of rows, in the order of `keys`, with [`Consistency::Plain`]. A row that
    /// does not exist is `None`. The rows are not a snapshot.
    ///
    /// A row that a call has read is not lost: a later read finds the row or a later write of it,
    /// even if the write of the row was not acknowledged.
    async fn get_batch(&self, keys: &[Key], deadline: Instant) -> Result<Vec<Option<FoundRow>>>;

    /// Reads the values of any number of rows, as [`get_batch`](AppStorage::get_batch) reads the
    /// rows. On some storages this costs less.
    async fn get_values(&self, keys: &[Key], deadline: Instant) -> Result<Vec<Option<Bytes>>> {
        let rows = self.get_batch(keys, deadline).await?;
        Ok(rows.into_iter().map(|row| row.map(|row| row.value)).collect())
    }

    /// Reads the rows of a range. Each page must arrive within `page_timeout` after the stream asks
    /// for it. The time that the caller takes between rows does not count. The rows are not a
    /// snapshot: a row that is written during the read may be seen or not.
    fn read(
        &self,
        pkey: Bytes,
        range: Range,
        consistency: Consistency,
        page_timeout: Duration,
    ) -> RowStream;

    /// Reads the rows of a range as a plain [`read`](AppStorage::read) does, with the remaining TTL
    /// of each row.
    fn ttl_read(&self, pkey: Bytes, range: Range, page_timeout: Duration) -> ExpiringRowStream;

    /// Lists the keys of the partitions whose keys begin with `prefix`, each once, in any order. A
    /// partition is in the list if it has rows when the call begins and nobody writes to it
    /// meanwhile. Expired and deleted rows may leave their partition in the list. Each page must
    /// arrive within `page_timeout`.
    ///
    /// The call is for operators: a storage without an order of its partitions reads the keys of
    /// the whole keyspace.
    fn partitions(&self, prefix: Bytes, page_timeout: Duration) -> PartitionStream;

    /// Writes any number of rows in any partitions. If a batch has several writes of one row, the
    /// last one counts. The batch is not atomic: after `Unavailable` or `OutcomeUnknown` any subset
    /// may be written, even later. Some storages order the plain writes of several nodes by the
    /// nodes' clocks. So a row that several nodes write should be ordered or conditional.
    async fn put_batch(&self, rows: Vec<Put>, deadline: Instant) -> Result<()>;

    /// Writes any number of rows. Of two writes of one row, the one with the higher order stays,
    /// whichever arrives first.
    ///
    /// - A superseded write is a success, and so is a write that a plain or a conditional row
    ///   hides.
    /// - Two writes of one row with equal orders must have equal values, and either both a TTL or
    ///   neither. Otherwise the caller has made an error: the contract does not say which of the
    ///   two writes stays, or whether the call is `Invalid`.
    /// - If a write with a TTL is sent again, the row lives at least as long as the write that was
    ///   done last asked for. A storage may keep the row until the latest expiry that any of these
    ///   writes asked for.
    /// - The rows of one partition are written atomically within the limits of
    ///   [`Capabilities::ordered`]. Otherwise any subset may be written after `Unavailable` or
    ///   `OutcomeUnknown`, even later.
    async fn put_ordered(&self, rows: Vec<OrderedPut>, deadline: Instant) -> Result<()>;

    /// Writes rows of one partition under conditions, linearizable, all or nothing, in one round.
    /// No row may be named twice. A call without operations is applied.
    ///
    /// To settle the write, call [`settle::write_if_settled`](crate::settle::write_if_settled)
    /// instead. Here its first attempt gets no answer:
    ///
    /// ```
    /// # use istorage::{AppStorage, Conditional, Conflict, KeyspaceName, Outcome};
    /// # use istorage::{StorageDriver, clock::Clock, mem::MemDriver, settle::*};
    /// # use std::time::Duration;
    /// # use tck::storage::{Fault, Faulty};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> istorage::Result<()> {
    /// # let (clock, name) = (Clock::system(), KeyspaceName::new("demo")?);
    /// # let driver = MemDriver::new(clock.clone());
    /// # let until = clock.now() + Duration::from_secs(9);
    /// # driver.create(&name, until).await?;
    /// # let storage = driver.open(&name, until).await?.expect("it was just created");
    /// # let mut faults = [Fault::AppliedButError].into_iter();
    /// # let script = move |_| faults.next().unwrap_or(Fault::None);
    /// # let storage = Faulty::scripted(storage, clock.clone(), script);
    /// let insert = |value| Conditional::Insert { ccols: "count".into(), value, ttl: None };
    /// let limits = SettleLimits { call_timeout: Duration::from_secs(1), until };
    /// let first = vec![insert("1".into())];
    /// let settled = write_if_settled(&storage, &clock, "cart".into(), first, limits).await?;
    /// assert_eq!(settled, Outcome::Applied);
    ///
    /// let outcome = storage.write_if("cart".into(), vec![insert("2".into())], until).await?;
    /// let conflict = Conflict { op: 0, actual: Some("1".into()) };
    /// assert_eq!(outcome, Outcome::NotApplied(vec![conflict]));
    /// # Ok(())
    /// # }
    /// ```
    async fn write_if(
        &self,
        pkey: Bytes,
        ops: Vec<Conditional>,
        deadline: Instant,
    ) -> Result<Outcome>;

    /// Writes rows in any partitions, linearizable, all or nothing. The call is `Invalid` if
    /// [`Capabilities::atomic`] does not offer it. All conditions are checked before any row is
    /// written. If a batch has several plain writes of one row, the last one counts. If it has
    /// several ordered writes of one row, the highest order counts. No row may be named by two
    /// kinds of writes or by two conditions.
    async fn write_atomic(&self, batch: AtomicBatch, deadline: Instant) -> Result<Outcome>;

    /// Reads the time by the clock of the storage's servers, `None` if there is no server.
    async fn server_time(&self, deadline: Instant) -> Result<Option<ServerTime>>;

    /// Ends the use of this storage. Calls under way get their answers, and later calls are
    /// `Closed`. The method may be called twice.
    async fn close(&self);
}
