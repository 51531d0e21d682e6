//! What is wrong with writes.

use std::{collections::HashSet, sync::atomic::Ordering, time::Duration};

use bytes::Bytes;
use clock::Instant;
use istorage::{
    AppStorageExt, AtomicBatch, Conditional, Conflict, Error, ErrorKind, Key, Order, OrderedPut,
    Outcome, Put, Result, TTL_MAX,
};

use super::{Defect, storage::WrongStorage};
use crate::tasks::yield_now;

/// How many calls may be under way at once, for [`Defect::DroppedCallsLeak`].
const PLACES: u64 = 40;

impl WrongStorage {
    pub(super) async fn wrong_put_batch(
        &self,
        mut rows: Vec<Put>,
        deadline: Instant,
    ) -> Result<()> {
        match self.defect {
            Defect::WritesLost => return Ok(()),
            Defect::EmptyBatchRefused if rows.is_empty() => {
                return Err(Error::invalid("an empty batch"));
            }
            Defect::LargeBatchRefused if rows.len() > 25 => {
                return Err(Error::invalid("a batch of more than 25 rows"));
            }
            Defect::LargeBatchCut => rows.truncate(25),
            Defect::UnprocessedDropped if rows.len() > 1 => rows.truncate(rows.len() - 1),
            Defect::FirstOfBatchCounts => rows.reverse(),
            _ => {}
        }
        for row in &mut rows {
            row.key = self.cut(row.key.clone());
            row.value = self.cut_value(row.value.clone());
            if let Some(joined) = self.joined(&row.key.pkey, &row.key.ccols) {
                row.key = joined;
            }
        }
        self.right.put_batch(rows, deadline).await
    }

    pub(super) async fn wrong_put_ordered(
        &self,
        mut rows: Vec<OrderedPut>,
        deadline: Instant,
    ) -> Result<()> {
        for row in &mut rows {
            row.key = self.cut(row.key.clone());
            row.value = self.cut_value(row.value.clone());
            row.ttl = self.wrong_ttl(row.ttl);
        }
        match self.defect {
            Defect::WritesLost => return Ok(()),
            Defect::EmptyBatchRefused if rows.is_empty() => {
                return Err(Error::invalid("an empty batch"));
            }
            Defect::LargeBatchCut => rows.truncate(25),
            Defect::OrderIgnored => {
                for row in &mut rows {
                    row.order = Order::new(self.clock.wall().as_micros() + self.next_count())?;
                }
            }
            Defect::OrderedOneByOne => {
                for row in rows {
                    self.right.put_ordered(vec![row], deadline).await?;
                    yield_now().await;
                }
                return Ok(());
            }
            _ => {}
        }
        self.right.put_ordered(rows, deadline).await
    }

    pub(super) async fn wrong_write_if(
        &self,
        pkey: Bytes,
        ops: Vec<Conditional>,
        deadline: Instant,
    ) -> Result<Outcome> {
        let pkey = self.cut(Key::new(pkey, "")).pkey;
        let ops: Vec<_> = ops.into_iter().map(|op| self.wrong_op(op)).collect();
        match self.defect {
            Defect::WritesLost => Ok(Outcome::Applied),
            Defect::EmptyBatchRefused if ops.is_empty() => Err(Error::invalid("no operations")),
            Defect::GetThenPut => self.get_then_put(pkey, ops, deadline).await,
            Defect::PartialWriteIf => self.one_by_one(pkey, ops, deadline).await,
            Defect::LimitsIgnored => self.in_parts(pkey, ops, deadline).await,
            Defect::BlindRetry => {
                match self.right.write_if(pkey.clone(), ops.clone(), deadline).await {
                    Err(error) if error.kind() == ErrorKind::OutcomeUnknown => {
                        self.right.write_if(pkey, ops, deadline).await
                    }
                    answer => answer,
                }
            }
            Defect::LateAnswerRefused => {
                let late = deadline - self.clock.now() < Duration::from_millis(3);
                let answer = self.right.write_if(pkey, ops, deadline).await;
                if late { Err(Error::unavailable("too late")) } else { answer }
            }
            Defect::ClosedThoughApplied => {
                let answer = self.right.write_if(pkey, ops, deadline).await;
                for _ in 0..20 {
                    yield_now().await;
                }
                let closed = self.closed.load(Ordering::Acquire);
                if closed { Err(Error::closed()) } else { answer }
            }
            Defect::DroppedCallsLeak => {
                if self.count.fetch_add(1, Ordering::Relaxed) >= PLACES {
                    return Err(Error::unavailable("no place is free"));
                }
                yield_now().await;
                let answer = self.right.write_if(pkey, ops, deadline).await;
                self.count.fetch_sub(1, Ordering::Relaxed);
                answer
            }
            _ => {
                let ops = self.bent(&pkey, ops, deadline).await?;
                let outcome = self.right.write_if(pkey.clone(), ops.clone(), deadline).await?;
                Ok(self.told(&pkey, &ops, outcome))
            }
        }
    }

    /// The operation with the wrong TTL, or of the wrong size.
    fn wrong_op(&self, op: Conditional) -> Conditional {
        match op {
            Conditional::Insert { ccols, value, ttl } => Conditional::Insert {
                ccols: self.cut(Key::new("p", ccols)).ccols,
                value: self.cut_value(value),
                ttl: self.wrong_ttl(ttl),
            },
            Conditional::Swap { ccols, old, new, ttl } => Conditional::Swap {
                ccols: self.cut(Key::new("p", ccols)).ccols,
                old,
                new: self.cut_value(new),
                ttl: self.wrong_ttl(ttl).filter(|_| !self.has(Defect::SwapForgetsTtl)),
            },
            delete @ Conditional::Delete { .. } => delete,
        }
    }

    fn wrong_ttl(&self, ttl: Option<Duration>) -> Option<Duration> {
        ttl.map(|ttl| match self.defect {
            Defect::EarlyExpiry => ttl.saturating_sub(Duration::from_secs(1)).max(ttl / 2),
            Defect::LateExpiry => ttl + Duration::from_secs(5),
            Defect::TtlWraps => Duration::from_millis(u64::from(ttl.as_millis() as u32))
                .max(Duration::from_millis(1)),
            Defect::LimitsIgnored => ttl.clamp(Duration::from_nanos(1), TTL_MAX),
            _ => ttl,
        })
    }

    /// Conditions that hold where they should not, and the other way round.
    async fn bent(
        &self,
        pkey: &Bytes,
        ops: Vec<Conditional>,
        deadline: Instant,
    ) -> Result<Vec<Conditional>> {
        let mut bent = Vec::with_capacity(ops.len());
        for op in ops {
            let key = Key::new(pkey.clone(), op.ccols().clone());
            let there = || self.right.get_linearizable(&key, deadline);
            let op = match (self.defect, op) {
                (Defect::SwapInserts, Conditional::Swap { ccols, new, ttl, .. })
                    if there().await?.is_none() =>
                {
                    Conditional::Insert { ccols, value: new, ttl }
                }
                (Defect::InsertOfSameApplied, Conditional::Insert { ccols, value, ttl })
                    if there().await?.as_ref() == Some(&value) =>
                {
                    Conditional::Swap { ccols, old: value.clone(), new: value, ttl }
                }
                (Defect::DeleteUnconditional, Conditional::Delete { ccols, old }) => {
                    Conditional::Delete { ccols, old: there().await?.unwrap_or(old) }
                }
                (Defect::SwapKeepsTtl, Conditional::Swap { ccols, old, new, ttl: None }) => {
                    let left = self.right.query_ttl(&key, deadline - self.clock.now()).await?;
                    Conditional::Swap { ccols, old, new, ttl: left.flatten() }
                }
                (Defect::PrefixesCompared, Conditional::Swap { ccols, old, new, ttl }) => {
                    let old = there().await?.filter(|there| similar(there, &old)).unwrap_or(old);
                    Conditional::Swap { ccols, old, new, ttl }
                }
                (_, op) => op,
            };
            bent.push(op);
        }
        Ok(bent)
    }

    /// The outcome as it is told, and what is remembered of it.
    fn told(&self, pkey: &Bytes, ops: &[Conditional], outcome: Outcome) -> Outcome {
        let refused = |op: usize| Outcome::NotApplied(vec![Conflict { op, there: None }]);
        match (self.defect, outcome) {
            (Defect::FirstConflictOnly, Outcome::NotApplied(mut conflicts)) => {
                conflicts.truncate(1);
                Outcome::NotApplied(conflicts)
            }
            (Defect::ConflictsEmpty, Outcome::NotApplied(mut conflicts)) => {
                conflicts.iter_mut().for_each(|conflict| conflict.there = None);
                Outcome::NotApplied(conflicts)
            }
            (Defect::SortedConflicts, Outcome::NotApplied(mut conflicts)) => {
                conflicts.sort_by_key(|conflict| ops[conflict.op].ccols());
                let mut places: Vec<&Bytes> = ops.iter().map(Conditional::ccols).collect();
                places.sort_unstable();
                for conflict in &mut conflicts {
                    let ccols = ops[conflict.op].ccols();
                    conflict.op = places.iter().position(|place| *place == ccols).unwrap_or(0);
                }
                Outcome::NotApplied(conflicts)
            }
            (Defect::SwapToSameRefused, Outcome::Applied) => {
                let same = ops.iter().position(|op| op.expected() == op.written());
                same.map_or(Outcome::Applied, refused)
            }
            (Defect::DeletedStaysTaken, Outcome::Applied) => {
                let mut memory = self.memory();
                let key = |op: &Conditional| Key::new(pkey.clone(), op.ccols().clone());
                let taken = ops.iter().position(|op| memory.keys.contains(&key(op)));
                memory.keys.extend(ops.iter().filter(|op| op.written().is_none()).map(key));
                taken.map_or(Outcome::Applied, refused)
            }
            (Defect::GetSeesExpired, Outcome::Applied) => {
                let rows = ops
                    .iter()
                    .map(|op| (Key::new(pkey.clone(), op.ccols().clone()), op.written().cloned()));
                self.memory().values.extend(rows);
                Outcome::Applied
            }
            (Defect::InsertSeesExpired, Outcome::Applied) => {
                let mut memory = self.memory();
                let mut taken = None;
                for (n, op) in ops.iter().enumerate() {
                    let key = Key::new(pkey.clone(), op.ccols().clone());
                    if op.written().is_none() {
                        memory.keys.remove(&key);
                    } else if !memory.keys.insert(key) && op.expected().is_none() {
                        taken = Some(n);
                    }
                }
                taken.map_or(Outcome::Applied, refused)
            }
            (_, outcome) => outcome,
        }
    }

    /// Reads the conditions, and writes later.
    async fn get_then_put(
        &self,
        pkey: Bytes,
        ops: Vec<Conditional>,
        deadline: Instant,
    ) -> Result<Outcome> {
        let mut conflicts = Vec::new();
        for (n, op) in ops.iter().enumerate() {
            let key = Key::new(pkey.clone(), op.ccols().clone());
            let there = self.right.get_linearizable(&key, deadline).await?;
            if there.as_ref() != op.expected() {
                conflicts.push(Conflict { op: n, there });
            }
        }
        if !conflicts.is_empty() {
            return Ok(Outcome::NotApplied(conflicts));
        }
        for op in ops {
            yield_now().await;
            self.overwrite(&pkey, op, deadline).await?;
        }
        Ok(Outcome::Applied)
    }

    /// Writes whatever is there: by conditional means, as a row is always of one kind.
    async fn overwrite(&self, pkey: &Bytes, op: Conditional, deadline: Instant) -> Result<()> {
        let ccols = op.ccols().clone();
        let key = Key::new(pkey.clone(), ccols.clone());
        loop {
            let there = self.right.get_linearizable(&key, deadline).await?;
            let ttl = op.ttl();
            let op = match (there, op.written().cloned()) {
                (None, None) => return Ok(()),
                (None, Some(value)) => Conditional::Insert { ccols: ccols.clone(), value, ttl },
                (Some(old), None) => Conditional::Delete { ccols: ccols.clone(), old },
                (Some(old), Some(new)) => Conditional::Swap { ccols: ccols.clone(), old, new, ttl },
            };
            if self.right.write_if(pkey.clone(), vec![op], deadline).await?.is_applied() {
                return Ok(());
            }
        }
    }

    async fn one_by_one(
        &self,
        pkey: Bytes,
        ops: Vec<Conditional>,
        deadline: Instant,
    ) -> Result<Outcome> {
        let mut all = Vec::new();
        for (n, op) in ops.into_iter().enumerate() {
            let outcome = self.right.write_if(pkey.clone(), vec![op], deadline).await?;
            if let Outcome::NotApplied(conflicts) = outcome {
                all.extend(conflicts.into_iter().map(|conflict| Conflict { op: n, ..conflict }));
            }
            yield_now().await;
        }
        Ok(if all.is_empty() { Outcome::Applied } else { Outcome::NotApplied(all) })
    }

    /// As many operations at once as are allowed, and a row once only.
    async fn in_parts(
        &self,
        pkey: Bytes,
        ops: Vec<Conditional>,
        deadline: Instant,
    ) -> Result<Outcome> {
        let limits = self.right.capabilities().conditional;
        let (mut part, mut named, mut bytes) = (Vec::<Conditional>::new(), HashSet::new(), 0);
        for op in ops {
            let values = [op.expected(), op.written()].into_iter().flatten();
            let size = pkey.len() + op.ccols().len() + values.map(Bytes::len).sum::<usize>();
            let twice = named.contains(op.ccols());
            if part.len() == limits.rows || bytes + size > limits.bytes || twice {
                let full = std::mem::take(&mut part);
                let _unseen = self.right.write_if(pkey.clone(), full, deadline).await?;
                named.clear();
                bytes = 0;
            }
            named.insert(op.ccols().clone());
            bytes += size;
            part.push(op);
        }
        self.right.write_if(pkey, part, deadline).await
    }

    pub(super) async fn wrong_write_atomic(
        &self,
        mut batch: AtomicBatch,
        deadline: Instant,
    ) -> Result<Outcome> {
        match self.defect {
            Defect::WritesLost => return Ok(Outcome::Applied),
            Defect::EmptyBatchRefused if batch == AtomicBatch::default() => {
                return Err(Error::invalid("an empty batch"));
            }
            Defect::FirstOfBatchCounts => batch.puts.reverse(),
            Defect::AtomicPartial => {
                let (ordered, puts) = (batch.ordered, batch.puts);
                self.right.put_ordered(ordered, deadline).await?;
                self.right.put_batch(puts, deadline).await?;
                yield_now().await;
                let conditionals = batch.conditionals;
                batch = AtomicBatch { conditionals, ..AtomicBatch::default() };
            }
            Defect::PartialWriteIf => return self.partitions_one_by_one(batch, deadline).await,
            Defect::LimitsIgnored => {
                let limits = self.right.capabilities();
                let most = limits.atomic.map_or(0, |atomic| atomic.rows);
                batch
                    .conditionals
                    .truncate(most.min(limits.conditional.bytes / limits.row.value / 2));
            }
            Defect::SupersededFails => {
                for put in &batch.ordered {
                    if self.right.get_linearizable(&put.key, deadline).await?.is_some() {
                        return Ok(Outcome::NotApplied(Vec::new()));
                    }
                }
            }
            _ => {}
        }
        for (_, op) in &mut batch.conditionals {
            *op = self.wrong_op(op.clone());
        }
        for row in &mut batch.puts {
            row.key = self.cut(row.key.clone());
            row.value = self.cut_value(row.value.clone());
        }
        match (self.defect, self.right.write_atomic(batch, deadline).await?) {
            (Defect::FirstConflictOnly, Outcome::NotApplied(mut conflicts)) => {
                conflicts.truncate(1);
                Ok(Outcome::NotApplied(conflicts))
            }
            (_, outcome) => Ok(outcome),
        }
    }

    async fn partitions_one_by_one(
        &self,
        batch: AtomicBatch,
        deadline: Instant,
    ) -> Result<Outcome> {
        let mut all = Vec::new();
        for (n, (pkey, op)) in batch.conditionals.into_iter().enumerate() {
            let outcome = self.right.write_if(pkey, vec![op], deadline).await?;
            if let Outcome::NotApplied(conflicts) = outcome {
                all.extend(conflicts.into_iter().map(|conflict| Conflict { op: n, ..conflict }));
            }
            yield_now().await;
        }
        self.right.put_ordered(batch.ordered, deadline).await?;
        self.right.put_batch(batch.puts, deadline).await?;
        Ok(if all.is_empty() { Outcome::Applied } else { Outcome::NotApplied(all) })
    }

    /// For [`Defect::LimitsIgnored`]: a key that fits.
    pub(super) fn cut(&self, mut key: Key) -> Key {
        if self.has(Defect::LimitsIgnored) {
            let limits = self.right.capabilities().row;
            key.pkey.truncate(limits.pkey);
            key.ccols.truncate(limits.ccols);
            if key.pkey.is_empty() {
                key.pkey = Bytes::from_static(b"empty");
            }
        }
        key
    }

    fn cut_value(&self, mut value: Bytes) -> Bytes {
        if self.has(Defect::LimitsIgnored) {
            value.truncate(self.right.capabilities().row.value);
        }
        value
    }
}

/// The first bytes are the same, whatever their case, and zeros at the end do not count.
fn similar(one: &[u8], other: &[u8]) -> bool {
    let start = |value: &[u8]| {
        let end = value.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        value[..end.min(64)].to_ascii_lowercase()
    };
    start(one) == start(other)
}
