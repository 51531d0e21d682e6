//! Storages that break the contract. The simulation must find each of them.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use clock::Instant;
use eventlog::{Entry, Epoch};
use futures::{StreamExt, TryStreamExt, future::ready};
use istorage::{
    AppStorageExt, AtomicBatch, Call, CallAnswer, Conditional, Conflict, FoundRow, Key, Order,
    OrderedPut, Outcome, RangeRead, Result, Row, RowStream, SharedStorage, StorageWrapper, Write,
};

/// How a storage, or a leadership, breaks its contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    /// A conditional write is done although its conditions do not hold.
    NoConditions,
    /// One of twenty conditional writes is answered and not done.
    LosesWrites,
    /// Of two ordered writes of a row the later one stays, not the higher order.
    NoOrder,
    /// The ordered rows of an atomic write are not written.
    TornBatches,
    /// The answers to commands are not stored.
    ForgetsAnswers,
    /// One of ten reads of a row finds nothing.
    Blind,
    /// Rows of workspace logs are written only with the next write, and not when their own write is
    /// answered.
    LateLogs,
    /// A stream of records, or of the log of a workspace, leaves out one of twenty rows. Logs of
    /// partitions are read without gaps.
    Gaps,
    /// One of ten reads of a row finds the value that the first read of that row found.
    OldRows,
    /// The next read of a row sees the value of a write that was refused.
    Phantoms,
    /// An ordered write of the band *first* replaces everything there.
    BandIgnored,
    /// Of two ordered writes of the band *first* the later one stays.
    LastOfFirstWins,
    /// A row that hides ordered writes is reported as one that does not.
    HidingNotReported,
    /// A read of rows that were written by their orders finds the last such write of each row,
    /// whatever the row holds.
    ReadBackIsBlind,
    /// One of three rows in the bands is reported as one that hides ordered writes. So a node
    /// writes the row conditionally, and its write may be committed over a later ordered one.
    OlderWrittenConditionally,
    /// A plain read does not repair the replicas that it asked.
    NoReadRepair,
    /// A recovery does not write the events of former leaders to the log again.
    AdoptedNotWritten,
    /// The storage says that no write lands late, so no leader writes a fencing entry.
    NotFenced,
    /// The fence is wrong, not the storage: two nodes lead at the same time, at the trust level at
    /// which only the fence is trusted.
    TwoLead,
}

impl Defect {
    pub(crate) const ALL: [Defect; 19] = [
        Defect::NoConditions,
        Defect::LosesWrites,
        Defect::NoOrder,
        Defect::TornBatches,
        Defect::ForgetsAnswers,
        Defect::Blind,
        Defect::LateLogs,
        Defect::Gaps,
        Defect::OldRows,
        Defect::Phantoms,
        Defect::BandIgnored,
        Defect::LastOfFirstWins,
        Defect::HidingNotReported,
        Defect::ReadBackIsBlind,
        Defect::OlderWrittenConditionally,
        Defect::NoReadRepair,
        Defect::AdoptedNotWritten,
        Defect::NotFenced,
        Defect::TwoLead,
    ];
}

impl Defect {
    /// The seed with which the search for the defect begins: shortly before the first one that
    /// finds it, so that the search does not take minutes.
    pub(crate) fn first_seed(self) -> u64 {
        match self {
            Defect::Phantoms => 2_400,
            Defect::OlderWrittenConditionally => 2_600,
            _ => 0,
        }
    }

    /// Whether the defect concerns only databases with replicas.
    pub(crate) fn is_of_replicas(self) -> bool {
        matches!(self, Defect::NoReadRepair | Defect::AdoptedNotWritten)
    }

    /// Whether the defect concerns only rows that are put and read back.
    pub(crate) fn is_of_reading_back(self) -> bool {
        matches!(
            self,
            Defect::BandIgnored
                | Defect::LastOfFirstWins
                | Defect::ReadBackIsBlind
                | Defect::OlderWrittenConditionally
                | Defect::NoReadRepair
        )
    }
}

/// The first bytes of the keys of records, of logs of partitions and of workspaces, and of answers
/// to commands.
pub(crate) const RECORDS: [u8; 2] = [0, 19];
const PLOGS: [u8; 2] = [0, 20];
pub(crate) const LOGS: [u8; 2] = [0, 21];
const ANSWERS: [u8; 2] = [0, 22];

#[derive(Debug)]
pub(crate) struct DefectiveStorage {
    inner: SharedStorage,
    defect: Defect,
    count: Arc<AtomicU64>,
    /// The rows that are written later.
    late: Mutex<AtomicBatch>,
    /// The values that rows held once, or never held.
    values: Mutex<HashMap<Key, Option<Bytes>>>,
    /// The highest order that each row was written with.
    orders: Mutex<HashMap<Key, Order>>,
}

impl DefectiveStorage {
    pub(crate) fn of(inner: SharedStorage, defect: Defect) -> Arc<DefectiveStorage> {
        let (count, late, values, orders) = Default::default();
        Arc::new(DefectiveStorage { inner, defect, count, late, values, orders })
    }

    /// Whether this call is the last one of `times` calls.
    fn one_in(&self, times: u64) -> bool {
        self.count.fetch_add(1, Ordering::SeqCst) % times == times - 1
    }

    /// The value that is returned for a row.
    fn returned(&self, key: &Key, there: Option<Bytes>) -> Option<Bytes> {
        match self.defect {
            Defect::Blind if self.one_in(10) => None,
            Defect::OldRows => {
                let mut values = self.values.lock().unwrap();
                let first = values.entry(key.clone()).or_insert_with(|| there.clone());
                if self.one_in(10) { first.clone() } else { there }
            }
            Defect::Phantoms => self.values.lock().unwrap().remove(key).unwrap_or(there),
            _ => there,
        }
    }

    /// Writes the rows that were held back before, and holds back the rows of logs.
    async fn delay(&self, batch: &mut AtomicBatch) -> Result<()> {
        let late = std::mem::take(&mut *self.late.lock().unwrap());
        for (pkey, op) in late.conditionals {
            drop(self.inner.write_if(pkey, vec![op], Instant::FAR_FUTURE).await?);
        }
        if !late.ordered.is_empty() {
            self.inner.put_ordered(late.ordered, Instant::FAR_FUTURE).await?;
        }
        let mut late = self.late.lock().unwrap();
        late.conditionals =
            batch.conditionals.extract_if(.., |(pkey, _)| pkey.starts_with(&LOGS)).collect();
        late.ordered =
            batch.ordered.extract_if(.., |put| put.key.pkey.starts_with(&LOGS)).collect();
        Ok(())
    }

    /// Notes the values that a refused write would have given to records.
    fn note_refused(&self, batch: &AtomicBatch) {
        let mut values = self.values.lock().unwrap();
        for (pkey, op) in batch.conditionals.iter().filter(|(pkey, _)| pkey.starts_with(&RECORDS)) {
            let key = Key { pkey: pkey.clone(), ccols: op.ccols().clone() };
            values.insert(key, op.written().cloned());
        }
    }

    fn ordered(&self, mut rows: Vec<OrderedPut>) -> Result<Vec<OrderedPut>> {
        if self.defect == Defect::ForgetsAnswers {
            rows.retain(|put| !put.key.pkey.starts_with(&ANSWERS));
        }
        if self.defect == Defect::NoOrder {
            for put in &mut rows {
                put.order = Order::new(self.count.fetch_add(1, Ordering::SeqCst) + 1)?;
            }
        }
        Ok(rows)
    }

    async fn put_ordered(&self, rows: Vec<OrderedPut>, deadline: Instant) -> Result<Outcome> {
        let mut batch = AtomicBatch { ordered: self.ordered(rows)?, ..AtomicBatch::default() };
        if self.defect == Defect::LateLogs {
            self.delay(&mut batch).await?;
        }
        match self.defect {
            Defect::BandIgnored | Defect::LastOfFirstWins => {
                self.remove_replaced(&batch.ordered).await?;
            }
            Defect::ReadBackIsBlind => {
                let rows = batch.ordered.iter();
                let written = rows.map(|put| (put.key.clone(), Some(put.value.clone())));
                self.values.lock().unwrap().extend(written);
            }
            _ => {}
        }
        if !batch.ordered.is_empty() {
            self.inner.put_ordered(batch.ordered, deadline).await?;
        }
        Ok(Outcome::Applied)
    }

    /// Removes the rows that writes of the band *first* replace, although they must not.
    async fn remove_replaced(&self, rows: &[OrderedPut]) -> Result<()> {
        for OrderedPut { key, value, order, .. } in rows {
            let known = self.orders.lock().unwrap().get(key).copied();
            let is_later_first = known.is_some_and(|known| known.is_first_wins() && *order < known);
            let is_wrong =
                order.is_first_wins() && (self.defect == Defect::BandIgnored || is_later_first);
            let highest = if is_wrong { *order } else { known.map_or(*order, |at| at.max(*order)) };
            self.orders.lock().unwrap().insert(key.clone(), highest);
            let keys = [key.clone()];
            let there = self.inner.get_batch(&keys, Instant::FAR_FUTURE).await?.pop().flatten();
            if let Some(there) = there.filter(|there| is_wrong && there.value != *value) {
                let op = Conditional::Delete { ccols: key.ccols.clone(), old: there.value };
                let pkey = key.pkey.clone();
                drop(self.inner.write_if(pkey, vec![op], Instant::FAR_FUTURE).await?);
            }
        }
        Ok(())
    }

    /// Whether a row is reported as one that hides ordered writes.
    fn hides_ordered(&self, key: &Key, there: bool) -> bool {
        match self.defect {
            Defect::HidingNotReported => false,
            Defect::OlderWrittenConditionally if key.pkey.starts_with(&RECORDS) => {
                there || self.one_in(3)
            }
            _ => there,
        }
    }

    /// Writes rows as one call: in one storage partition under conditions, or atomically.
    async fn write(
        &self,
        pkey: Option<Bytes>,
        mut batch: AtomicBatch,
        deadline: Instant,
    ) -> Result<Outcome> {
        batch.ordered = self.ordered(batch.ordered)?;
        if self.defect == Defect::LosesWrites && !batch.conditionals.is_empty() && self.one_in(20) {
            return Ok(Outcome::Applied);
        }
        if self.defect == Defect::TornBatches && !batch.conditionals.is_empty() {
            batch.ordered.clear();
        }
        if self.defect == Defect::LateLogs {
            self.delay(&mut batch).await?;
        }
        loop {
            match self.send(pkey.as_ref(), batch.clone(), deadline).await? {
                Outcome::NotApplied(conflicts) if self.defect == Defect::NoConditions => {
                    force_conditions(&mut batch.conditionals, conflicts);
                }
                Outcome::NotApplied(conflicts) if self.defect == Defect::Phantoms => {
                    self.note_refused(&batch);
                    return Ok(Outcome::NotApplied(conflicts));
                }
                outcome => return Ok(outcome),
            }
        }
    }

    /// Sends a write by the same call that it came by.
    ///
    /// A simpler version sends every write atomically. The replicas refuse such a write, so no
    /// history with replicas would write any event. Also, an atomic write never stays open.
    async fn send(
        &self,
        pkey: Option<&Bytes>,
        batch: AtomicBatch,
        deadline: Instant,
    ) -> Result<Outcome> {
        let Some(pkey) = pkey else { return self.inner.write_atomic(batch, deadline).await };
        let ops: Vec<_> = batch.conditionals.into_iter().map(|(_, op)| op).collect();
        match ops.is_empty() {
            true => Ok(Outcome::Applied),
            false => self.inner.write_if(pkey.clone(), ops, deadline).await,
        }
    }
}

/// Gives a write conditions that hold.
fn force_conditions(ops: &mut [(Bytes, Conditional)], conflicts: Vec<Conflict>) {
    for Conflict { op, actual } in conflicts {
        let (_, op) = &mut ops[op];
        let (ccols, ttl) = (op.ccols().clone(), op.ttl());
        let Some(value) = op.written().cloned() else { continue };
        *op = match actual {
            Some(old) => Conditional::Swap { ccols, old, new: value, ttl },
            None => Conditional::Insert { ccols, value, ttl },
        };
    }
}

impl StorageWrapper for DefectiveStorage {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        match call {
            Call::Get(key, consistency) => {
                let there = self.inner.get(key, consistency, deadline).await?;
                Ok(CallAnswer::Value(self.returned(key, there)))
            }
            Call::GetBatch(keys) => {
                let there = keys.iter().zip(self.inner.get_batch(keys, deadline).await?);
                let returned = there.map(|(key, there)| {
                    let hides_ordered = there.as_ref().is_some_and(|row| row.hides_ordered);
                    let hides_ordered = self.hides_ordered(key, hides_ordered);
                    let value = self.returned(key, there.map(|row| row.value))?;
                    Some(FoundRow { value, hides_ordered })
                });
                Ok(CallAnswer::Rows(returned.collect()))
            }
            Call::GetValues(keys) => {
                let there = keys.iter().zip(self.inner.get_values(keys, deadline).await?);
                let returned = there.map(|(key, there)| match self.defect {
                    Defect::ReadBackIsBlind => {
                        self.values.lock().unwrap().get(key).cloned().unwrap_or(there)
                    }
                    _ => self.returned(key, there),
                });
                Ok(CallAnswer::Values(returned.collect()))
            }
            Call::Write(Write::PutOrdered(rows)) => {
                Ok(self.put_ordered(rows, deadline).await?.into())
            }
            Call::Write(Write::If(pkey, ops)) => {
                let conditionals = ops.into_iter().map(|op| (pkey.clone(), op)).collect();
                let batch = AtomicBatch { conditionals, ..AtomicBatch::default() };
                Ok(self.write(Some(pkey), batch, deadline).await?.into())
            }
            Call::Write(Write::Atomic(batch)) => {
                Ok(self.write(None, batch, deadline).await?.into())
            }
            call => call.send(&self.inner, deadline).await,
        }
    }

    fn read(&self, read: RangeRead) -> RowStream {
        let is_read_by_clients = read.pkey.starts_with(&LOGS) || read.pkey.starts_with(&RECORDS);
        let rows = read.send(&self.inner);
        if self.defect != Defect::Gaps || !is_read_by_clients {
            return rows;
        }
        let count = Arc::clone(&self.count);
        let is_reported = move |_: &Row| ready(count.fetch_add(1, Ordering::SeqCst) % 20 != 19);
        rows.try_filter(is_reported).boxed()
    }
}

/// The storage of a leader that never puts an event of a former leader into the log.
#[derive(Debug)]
pub(crate) struct OwnEventsOnly {
    pub(crate) inner: SharedStorage,
    pub(crate) epoch: Epoch,
}

impl StorageWrapper for OwnEventsOnly {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        match call {
            Call::Write(Write::PutOrdered(mut rows)) => {
                let is_own =
                    |put: &OrderedPut| Entry::from_bytes(&put.value).unwrap().epoch() == self.epoch;
                rows.retain(|put| !put.key.pkey.starts_with(&PLOGS) || is_own(put));
                if rows.is_empty() {
                    return Ok(Outcome::Applied.into());
                }
                Ok(self.inner.put_ordered(rows, deadline).await.map(|()| Outcome::Applied)?.into())
            }
            call => call.send(&self.inner, deadline).await,
        }
    }
}

/// The storage of a leader that reads records linearizably.
#[derive(Debug)]
pub(crate) struct LinearizableRecords(pub(crate) SharedStorage);

impl StorageWrapper for LinearizableRecords {
    fn inner(&self) -> &SharedStorage {
        &self.0
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        match call {
            Call::Get(key, _) if key.pkey.starts_with(&RECORDS) => {
                Ok(CallAnswer::Value(self.0.get_linearizable(key, deadline).await?))
            }
            call => call.send(&self.0, deadline).await,
        }
    }
}
