//! The stored rows of document numbers: definitions, counters and their ledgers.
//!
//! All rows of a counter are in one storage partition, so one conditional write changes them
//! together.

mod copies;
mod definitions;
mod keys;
mod values;

use std::time::Duration;

use bytes::Bytes;
use clock::{Clock, Instant, WallTime};
use futures::{StreamExt, TryStreamExt};
use istorage::{AppStorageExt, Range, Result, SharedStorage, settle::SettleLimits};

pub use definitions::{FixError, Policy, StoredDefinitions};
pub(crate) use values::{CounterRow, LedgerRow, Token};

use crate::{Period, SeriesId, WsId};

/// The place of all rows of document numbers of an application, in a storage.
///
/// ```
/// use docnumbers::{Definition, DocNumberRows, Policy, Series};
/// # use docnumbers::{clock::Clock, istorage::{KeyspaceName, StorageDriver, mem::MemDriver}};
/// # use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let clock = Clock::system();
/// # let (driver, name) = (MemDriver::new(clock.clone()), KeyspaceName::new("demo")?);
/// # let soon = clock.now() + Duration::from_secs(5);
/// # driver.create(&name, soon).await?;
/// # let storage = driver.open(&name, soon).await?.ok_or("the keyspace does not exist")?;
/// let rows = DocNumberRows::new(storage, clock, "numbers", Duration::from_secs(1));
/// let tickets = Series::new(Definition::new("ticket", "T{counter:4}"))?;
/// rows.fix(&tickets, Policy::Fast, soon).await?;
///
/// // These numbers could repeat numbers of the first definition.
/// let other = Series::new(Definition::new("ticket", "T{counter:3}7"))?;
/// assert!(rows.fix(&other, Policy::Fast, soon).await.is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct DocNumberRows {
    storage: SharedStorage,
    clock: Clock,
    prefix: Bytes,
    call_timeout: Duration,
}

/// The name of a counter. [`Series::counter_key`](crate::Series::counter_key) makes the one of a
/// workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterKey {
    /// The series.
    pub series: SeriesId,
    /// The period.
    pub period: Period,
    /// The workspace; `None` if the application has one counter.
    pub ws: Option<WsId>,
}

/// Counters that were reserved. If all of them are issued, the entry goes with the next
/// reservation, or when the counter is given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerEntry {
    /// The first counter.
    pub first: u64,
    /// The end: the first counter that does not belong to the range.
    pub until: u64,
    /// The node that reserved the range.
    pub owner: String,
    /// The time of the reservation, by the clock of the owner.
    pub reserved_at: WallTime,
    /// The state of the range.
    pub state: RangeState,
}

/// The state of a range in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeState {
    /// The owner issues these counters one after another. If the owner has crashed, it issued the
    /// counters up to some point, and the others are lost.
    Open,
    /// No counter of the range was issued, and none will be.
    NotIssued,
}

impl DocNumberRows {
    /// The rows whose partition keys begin with `prefix`. No other row of the storage must have
    /// such a partition key. A call of the storage may take `call_timeout`. A conditional write may
    /// take half of the time that is left to its caller, if that is less. Reading a ledger may take
    /// all of that time.
    pub fn new(
        storage: SharedStorage,
        clock: Clock,
        prefix: impl Into<Bytes>,
        call_timeout: Duration,
    ) -> DocNumberRows {
        DocNumberRows { storage, clock, prefix: prefix.into(), call_timeout }
    }

    /// The next counter to reserve; `None` if no counter was reserved yet.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn counter(&self, of: &CounterKey, deadline: Instant) -> Result<Option<u64>> {
        let row = self.counter_row(&self.pkey(of), deadline).await?;
        row.map(|row| Ok(CounterRow::read(&row)?.next)).transpose()
    }

    /// The ledger: at most `limit` reserved ranges with counters that may be unissued, ascending.
    /// The first one begins at `from` or later. A range that a node holds now is in the ledger,
    /// too.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn ledger(
        &self,
        of: &CounterKey,
        from: u64,
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<LedgerEntry>> {
        let range = Range::from(keys::ledger(from));
        let page_timeout = deadline.saturating_since(self.clock.now());
        let rows = self.storage.read_linearizable(self.pkey(of), range, page_timeout).take(limit);
        let entries = rows.map(|row| {
            let row = row?;
            Ok(LedgerRow::read(&row.value)?.entry(keys::first_of_ledger(&row.ccols)?))
        });
        let timed_out = || istorage::Error::unavailable("the ledger was not read in time");
        let entries = self.clock.timeout_at(deadline, entries.try_collect()).await;
        entries.map_err(|_| timed_out())?
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(crate) fn storage(&self) -> &SharedStorage {
        &self.storage
    }

    /// The limits of a conditional write that must be settled until `until`.
    pub(crate) fn limits(&self, until: Instant) -> SettleLimits {
        let left = until.saturating_since(self.clock.now());
        SettleLimits { call_timeout: self.call_timeout.min(left / 2), until }
    }

    /// The deadline of work that may need several calls.
    pub(crate) fn several_calls(&self) -> Instant {
        self.clock.now() + self.call_timeout * 4
    }

    /// The partition key of a counter.
    pub(crate) fn pkey(&self, of: &CounterKey) -> Bytes {
        keys::counter(&self.prefix, of)
    }

    /// Reads the stored bytes of a counter.
    pub(crate) async fn counter_row(
        &self,
        pkey: &Bytes,
        deadline: Instant,
    ) -> Result<Option<Bytes>> {
        let key = istorage::Key { pkey: pkey.clone(), ccols: keys::COUNTER };
        self.storage
            .get_linearizable(&key, deadline.min(self.clock.now() + self.call_timeout))
            .await
    }
}

/// The clustering columns of the rows of a counter.
pub(crate) mod places {
    pub(crate) use super::keys::{COUNTER, ledger};
}
