//! Storages that do not keep the contract: what they do must be found.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use async_trait::async_trait;
use bytes::Bytes;
use clock::Instant;
use istorage::{
    AtomicBatch, Conditional, Conflict, Consistency, Key, Order, OrderedPut, Outcome, Result,
    SharedStorage,
};
use vvm_tests::between::{Between, Through};

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// Whatever is there, a conditional write is done.
    NoConditions,
    /// Of twenty writes with conditions that are answered one is not done.
    LosesWrites,
    /// Of two ordered writes of a row the one stays that comes last.
    NoOrder,
    /// The ordered rows of an atomic write are not written.
    TornBatches,
    /// Answers to commands are not kept.
    ForgetsAnswers,
    /// Of ten reads of rows one finds nothing.
    Blind,
    /// Not the storage lies, but the lead: two lead at the same time where nothing but the lead is trusted.
    TwoLead,
    /// The same again and again: even what is promised when two lead once does not hold then.
    ManyLead,
}

impl Lie {
    pub(crate) const ALL: [Lie; 8] = [
        Lie::NoConditions,
        Lie::LosesWrites,
        Lie::NoOrder,
        Lie::TornBatches,
        Lie::ForgetsAnswers,
        Lie::Blind,
        Lie::TwoLead,
        Lie::ManyLead,
    ];

    /// It is the lead that lies.
    pub(crate) fn is_of_lead(self) -> bool {
        matches!(self, Lie::TwoLead | Lie::ManyLead)
    }
}

/// The keys of answers to commands begin so.
const ANSWERS: [u8; 2] = [0, 22];

#[derive(Debug)]
pub(crate) struct Lying {
    inner: SharedStorage,
    lie: Lie,
    count: AtomicU64,
}

impl Lying {
    pub(crate) fn of(inner: SharedStorage, lie: Lie) -> Arc<Through<Lying>> {
        Through::new(Lying { inner, lie, count: AtomicU64::new(0) })
    }

    /// Whether it is the turn of one of so many.
    fn one_in(&self, times: u64) -> bool {
        self.count.fetch_add(1, Ordering::SeqCst) % times == times - 1
    }

    fn ordered(&self, mut rows: Vec<OrderedPut>) -> Result<Vec<OrderedPut>> {
        if self.lie == Lie::ForgetsAnswers {
            rows.retain(|put| !put.key.pkey.starts_with(&ANSWERS));
        }
        if self.lie == Lie::NoOrder {
            for put in &mut rows {
                put.order = Order::new(self.count.fetch_add(1, Ordering::SeqCst) + 1)?;
            }
        }
        Ok(rows)
    }
}

/// The same write, with conditions that hold.
fn forced(ops: &mut [(Bytes, Conditional)], conflicts: Vec<Conflict>) {
    for Conflict { op, there } in conflicts {
        let (_, op) = &mut ops[op];
        let (ccols, ttl) = (op.ccols().clone(), op.ttl());
        let Some(value) = op.written().cloned() else { continue };
        *op = match there {
            Some(old) => Conditional::Swap { ccols, old, new: value, ttl },
            None => Conditional::Insert { ccols, value, ttl },
        };
    }
}

#[async_trait]
impl Between for Lying {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn get(
        &self,
        key: &Key,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<Option<Bytes>> {
        if self.lie == Lie::Blind && self.one_in(10) {
            return Ok(None);
        }
        self.inner.get(key, consistency, deadline).await
    }

    async fn put_ordered(&self, rows: Vec<OrderedPut>, deadline: Instant) -> Result<()> {
        self.inner.put_ordered(self.ordered(rows)?, deadline).await
    }

    async fn write_if(
        &self,
        pkey: Bytes,
        ops: Vec<Conditional>,
        deadline: Instant,
    ) -> Result<Outcome> {
        let conditionals = ops.into_iter().map(|op| (pkey.clone(), op)).collect();
        self.write_atomic(AtomicBatch { conditionals, ..AtomicBatch::default() }, deadline).await
    }

    async fn write_atomic(&self, mut batch: AtomicBatch, deadline: Instant) -> Result<Outcome> {
        batch.ordered = self.ordered(batch.ordered)?;
        if self.lie == Lie::LosesWrites && !batch.conditionals.is_empty() && self.one_in(20) {
            return Ok(Outcome::Applied);
        }
        if self.lie == Lie::TornBatches && !batch.conditionals.is_empty() {
            batch.ordered.clear();
        }
        loop {
            match self.inner.write_atomic(batch.clone(), deadline).await? {
                Outcome::NotApplied(conflicts) if self.lie == Lie::NoConditions => {
                    forced(&mut batch.conditionals, conflicts);
                }
                outcome => return Ok(outcome),
            }
        }
    }
}
