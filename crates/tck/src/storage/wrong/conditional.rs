//! The defects of `write_if`.

use std::{collections::HashSet, sync::atomic::Ordering, time::Duration};

use bytes::Bytes;
use clock::Instant;
use istorage::{AppStorageExt, Conditional, Conflict, Error, ErrorKind, Key, Outcome, Result};

use super::{Defect, storage::WrongStorage};
use crate::trial::tasks::yield_now;

/// The number of calls that may be under way at once, for [`Defect::DroppedCallsLeak`].
const PLACES: u64 = 40;

impl WrongStorage {
    pub(super) async fn wrong_write_if(
        &self,
        pkey: Bytes,
        ops: Vec<Conditional>,
        deadline: Instant,
    ) -> Result<Outcome> {
        match self.defect {
            Defect::GetThenPut => self.get_then_put(pkey, ops, deadline).await,
            Defect::PartialWriteIf => {
                let conditionals = ops.into_iter().map(|op| (pkey.clone(), op)).collect();
                self.one_by_one(conditionals, deadline).await
            }
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
            Defect::OutcomeNeverKnown => {
                let is_far = deadline - self.clock.now() > Duration::from_secs(5);
                let answer = self.right.write_if(pkey, ops, deadline).await;
                let unknown = Error::new(ErrorKind::OutcomeUnknown, "nobody knows");
                if is_far { answer } else { Err(unknown) }
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
                Ok(self.reported(&pkey, &ops, outcome))
            }
        }
    }

    /// Changes the operations as the defect does. Most defects make a condition hold that should
    /// fail.
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

    /// The outcome as the defect reports it. Some defects also remember the outcome.
    fn reported(&self, pkey: &Bytes, ops: &[Conditional], outcome: Outcome) -> Outcome {
        let refused = |op: usize| Outcome::NotApplied(vec![Conflict { op, actual: None }]);
        match (self.defect, outcome) {
            (Defect::ConflictsEmpty, Outcome::NotApplied(mut conflicts)) => {
                conflicts.iter_mut().for_each(|conflict| conflict.actual = None);
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

    /// Reads the rows of the conditions, and writes later.
    async fn get_then_put(
        &self,
        pkey: Bytes,
        ops: Vec<Conditional>,
        deadline: Instant,
    ) -> Result<Outcome> {
        let mut conflicts = Vec::new();
        for (n, op) in ops.iter().enumerate() {
            let key = Key::new(pkey.clone(), op.ccols().clone());
            let actual = self.right.get_linearizable(&key, deadline).await?;
            if actual.as_ref() != op.expected() {
                conflicts.push(Conflict { op: n, actual });
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

    /// Writes a row over any value. A row is always of one kind, so this uses conditional writes.
    async fn overwrite(&self, pkey: &Bytes, op: Conditional, deadline: Instant) -> Result<()> {
        let ccols = op.ccols().clone();
        let key = Key::new(pkey.clone(), ccols.clone());
        loop {
            let actual = self.right.get_linearizable(&key, deadline).await?;
            let ttl = op.ttl();
            let op = match (actual, op.written().cloned()) {
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

    /// Sends as many operations at once as the limits allow, and each row at most once in a part.
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
}

/// Whether two values begin with the same bytes. Upper and lower case are equal, and zeros at the
/// end do not count.
fn similar(one: &[u8], other: &[u8]) -> bool {
    let start = |value: &[u8]| {
        let end = value.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        value[..end.min(64)].to_ascii_lowercase()
    };
    start(one) == start(other)
}
