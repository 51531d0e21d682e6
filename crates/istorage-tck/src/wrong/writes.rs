//! The defects of plain, ordered and atomic writes.

use std::time::Duration;

use bytes::Bytes;
use clock::Instant;
use istorage::{
    AppStorageExt, AtomicBatch, Conditional, Conflict, Error, Key, Order, OrderedPut, Outcome, Put,
    Result, TTL_MAX,
};
use trialkit::tasks::yield_now;

use super::{Defect, storage::WrongStorage};

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
            Defect::EqualOrderIgnored => {
                let orders = &mut self.memory().orders;
                rows.retain(|row| orders.insert(row.key.clone(), row.order) != Some(row.order));
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

    /// The operation with the wrong TTL, or with the wrong size.
    pub(super) fn wrong_op(&self, op: Conditional) -> Conditional {
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

    /// For [`Defect::LimitsIgnored`]: the key, cut to the limits.
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
