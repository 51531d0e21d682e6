//! The defects of writes, except those of `write_if` alone.

use std::{mem::take, time::Duration};

use bytes::Bytes;
use clock::Instant;
use istorage::{
    AppStorageExt, AtomicBatch, Conditional, Conflict, Error, Key, Order, OrderedPut, Outcome, Put,
    Result, TTL_MAX, Write,
};

use super::{Defect, storage::WrongStorage};
use crate::trial::tasks::yield_now;

impl WrongStorage {
    pub(super) async fn wrong_write(&self, write: Write, deadline: Instant) -> Result<Outcome> {
        if self.has(Defect::WritesLost) {
            return Ok(Outcome::Applied);
        }
        let outcome = match self.with_wrong_rows(write) {
            Write::PutBatch(rows) => self.wrong_put_batch(rows, deadline).await?,
            Write::PutOrdered(rows) => self.wrong_put_ordered(rows, deadline).await?,
            Write::If(pkey, ops) => self.wrong_write_if(pkey, ops, deadline).await?,
            Write::Atomic(batch) => self.wrong_write_atomic(batch, deadline).await?,
        };
        Ok(match (self.defect, outcome) {
            (Defect::FirstConflictOnly, Outcome::NotApplied(mut conflicts)) => {
                conflicts.truncate(1);
                Outcome::NotApplied(conflicts)
            }
            (_, outcome) => outcome,
        })
    }

    /// The write with wrong keys, sizes and TTLs.
    fn with_wrong_rows(&self, write: Write) -> Write {
        let puts = |rows: Vec<Put>| rows.into_iter().map(|put| self.wrong_put(put)).collect();
        let ordered =
            |rows: Vec<OrderedPut>| rows.into_iter().map(|put| self.wrong_ordered(put)).collect();
        match write {
            Write::PutBatch(rows) => Write::PutBatch(puts(rows)),
            Write::PutOrdered(rows) => Write::PutOrdered(ordered(rows)),
            Write::If(pkey, ops) => {
                let ops = ops.into_iter().map(|op| self.wrong_op(op)).collect();
                Write::If(self.cut(Key::new(pkey, "")).pkey, ops)
            }
            Write::Atomic(batch) => {
                let conditionals = batch.conditionals.into_iter();
                Write::Atomic(AtomicBatch {
                    conditionals: conditionals
                        .map(|(pkey, op)| (pkey, self.wrong_op(op)))
                        .collect(),
                    ordered: ordered(batch.ordered),
                    puts: puts(batch.puts),
                })
            }
        }
    }

    fn wrong_put(&self, put: Put) -> Put {
        let key = self.cut(put.key);
        let key = self.joined(&key.pkey, &key.ccols).unwrap_or(key);
        Put { key, value: self.cut_value(put.value) }
    }

    fn wrong_ordered(&self, put: OrderedPut) -> OrderedPut {
        let (key, value, ttl) =
            (self.cut(put.key), self.cut_value(put.value), self.wrong_ttl(put.ttl));
        OrderedPut { key, value, ttl, order: self.wrong_order(put.order) }
    }

    fn wrong_order(&self, order: Order) -> Order {
        let number = order.rank().unsigned_abs();
        match self.defect {
            Defect::BandIgnored => Order::new(number).unwrap_or(order),
            Defect::LastOfFirstStays if order.is_first_wins() => {
                Order::new(Order::MAX + 1 - number).map_or(order, Order::first_wins)
            }
            _ => order,
        }
    }

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

    async fn wrong_put_batch(&self, mut rows: Vec<Put>, deadline: Instant) -> Result<Outcome> {
        match self.defect {
            Defect::LargeBatchRefused if rows.len() > 25 => {
                return Err(Error::invalid("a batch of more than 25 rows"));
            }
            Defect::LargeBatchCut => rows.truncate(25),
            Defect::UnprocessedDropped if rows.len() > 1 => rows.truncate(rows.len() - 1),
            Defect::FirstOfBatchCounts => rows.reverse(),
            _ => {}
        }
        Write::PutBatch(rows).send(&self.right, deadline).await
    }

    async fn wrong_put_ordered(
        &self,
        mut rows: Vec<OrderedPut>,
        deadline: Instant,
    ) -> Result<Outcome> {
        match self.defect {
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
            Defect::OrderedReplacesAll => {
                let keys: Vec<Key> = rows.iter().map(|row| row.key.clone()).collect();
                let found = self.right.get_batch(&keys, deadline).await?;
                for (key, row) in keys.into_iter().zip(found) {
                    if let Some(row) = row.filter(|row| row.hides_ordered) {
                        let deleted = self.right.compare_and_delete(key, row.value, deadline);
                        let _outcome = deleted.await?;
                    }
                }
            }
            Defect::OrderedOneByOne => {
                for row in rows {
                    self.right.put_ordered(vec![row], deadline).await?;
                    yield_now().await;
                }
                return Ok(Outcome::Applied);
            }
            _ => {}
        }
        Write::PutOrdered(rows).send(&self.right, deadline).await
    }

    async fn wrong_write_atomic(
        &self,
        mut batch: AtomicBatch,
        deadline: Instant,
    ) -> Result<Outcome> {
        match self.defect {
            Defect::FirstOfBatchCounts => batch.puts.reverse(),
            Defect::AtomicPartial => {
                self.right.put_ordered(take(&mut batch.ordered), deadline).await?;
                self.right.put_batch(take(&mut batch.puts), deadline).await?;
                yield_now().await;
            }
            Defect::PartialWriteIf => {
                let outcome = self.one_by_one(batch.conditionals, deadline).await?;
                self.right.put_ordered(batch.ordered, deadline).await?;
                self.right.put_batch(batch.puts, deadline).await?;
                return Ok(outcome);
            }
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
        self.right.write_atomic(batch, deadline).await
    }

    /// Does each conditional write separately.
    pub(super) async fn one_by_one(
        &self,
        conditionals: Vec<(Bytes, Conditional)>,
        deadline: Instant,
    ) -> Result<Outcome> {
        let mut all = Vec::new();
        for (n, (pkey, op)) in conditionals.into_iter().enumerate() {
            let outcome = self.right.write_if(pkey, vec![op], deadline).await?;
            if let Outcome::NotApplied(conflicts) = outcome {
                all.extend(conflicts.into_iter().map(|conflict| Conflict { op: n, ..conflict }));
            }
            yield_now().await;
        }
        Ok(if all.is_empty() { Outcome::Applied } else { Outcome::NotApplied(all) })
    }
}
