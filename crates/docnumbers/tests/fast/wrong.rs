//! Mistakes of a node that draws from fast series. Each of them must be found.
//!
//! The code that reserves counters and gives them back is private to the crate, and does both with
//! one conditional write of a counter and its ledger. So most defects change this write, or its
//! answer, in a storage below the right code. So the rows are those that the wrong code would have
//! written.

use std::sync::Arc;

use docnumbers::{
    clock::Instant,
    istorage::{
        Call, CallAnswer, Conditional, Conflict, Error, ErrorKind, Outcome, RangeRead, Result,
        RowStream, SharedStorage, StorageWrapper, Write, bytes::Bytes,
    },
};

/// The clustering columns of the row of a counter.
const COUNTER: &[u8] = &[0];

/// A mistake of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DrawDefect {
    /// A range is reserved although another node has changed the counter.
    ReservesWithoutCondition,
    /// Counters are given back although another node has reserved later ones.
    GivesBackWithoutCondition,
    /// Counters that a node holds when it stops are not given back, and have no row.
    GivesNothingBack,
    /// The ledger gets no rows.
    NoLedger,
    /// A reservation without an answer is forgotten, and a new one is made.
    UnsettledForgotten,
    /// The counter goes on in the next period.
    PeriodIgnored,
    /// All workspaces have one counter.
    WorkspaceIgnored,
}

/// The storage as a node with a defect uses it.
#[derive(Debug)]
pub(crate) struct WrongReserver {
    inner: SharedStorage,
    defect: DrawDefect,
}

impl WrongReserver {
    pub(crate) fn of(inner: SharedStorage, defect: DrawDefect) -> Arc<WrongReserver> {
        Arc::new(WrongReserver { inner, defect })
    }

    /// The key of a counter, as a node with the defect makes it. The key ends with the five bytes
    /// of the period, and eight of a workspace.
    fn pkey(&self, pkey: Bytes) -> Bytes {
        let mut key = pkey.to_vec();
        let len = key.len();
        match self.defect {
            DrawDefect::PeriodIgnored if len > 13 => key[len - 13..len - 8].fill(0),
            DrawDefect::WorkspaceIgnored if len > 13 => key[len - 8..].fill(0),
            _ => {}
        }
        key.into()
    }

    /// Whether the condition of the write is left out.
    fn ignores_conflict(&self, ops: &[Conditional]) -> bool {
        match self.defect {
            DrawDefect::ReservesWithoutCondition => !gives_back(ops),
            DrawDefect::GivesBackWithoutCondition => gives_back(ops),
            _ => false,
        }
    }

    /// Whether the defect leaves this operation out of its write.
    fn leaves_out(&self, op: &Conditional, gives_back: bool) -> bool {
        match self.defect {
            DrawDefect::NoLedger => op.ccols() != COUNTER,
            DrawDefect::GivesNothingBack => gives_back && op.ccols() == COUNTER,
            _ => false,
        }
    }

    async fn write_if(
        &self,
        pkey: Bytes,
        ops: Vec<Conditional>,
        deadline: Instant,
    ) -> Result<Outcome> {
        let (pkey, gives_back) = (self.pkey(pkey), gives_back(&ops));
        let kept = ops.into_iter().enumerate();
        let kept = kept.filter(|(_, op)| !self.leaves_out(op, gives_back));
        let (places, mut ops): (Vec<usize>, Vec<Conditional>) = kept.unzip();
        if ops.is_empty() {
            return Ok(Outcome::Applied);
        }
        loop {
            match self.inner.write_if(pkey.clone(), ops.clone(), deadline).await? {
                Outcome::NotApplied(conflicts) if self.ignores_conflict(&ops) => {
                    for Conflict { op, actual } in conflicts.into_iter().rev() {
                        match with_condition(&ops[op], actual) {
                            Some(holds) => ops[op] = holds,
                            None => drop(ops.remove(op)),
                        }
                    }
                }
                Outcome::NotApplied(mut conflicts) => {
                    conflicts.iter_mut().for_each(|conflict| conflict.op = places[conflict.op]);
                    return Ok(Outcome::NotApplied(conflicts));
                }
                Outcome::Applied => return Ok(Outcome::Applied),
            }
        }
    }
}

/// The number in the row of a counter: the next value.
fn next_of(row: &Bytes) -> u64 {
    row[1..].first_chunk().map_or(0, |next| u64::from_be_bytes(*next))
}

/// Whether a write lowers a counter.
fn gives_back(ops: &[Conditional]) -> bool {
    ops.iter().any(|op| match op {
        Conditional::Swap { ccols, old, new, .. } if ccols == COUNTER => {
            next_of(new) < next_of(old)
        }
        _ => false,
    })
}

/// The same write, with a condition that holds; `None` for the removal of a row that is gone.
fn with_condition(op: &Conditional, actual: Option<Bytes>) -> Option<Conditional> {
    let (ccols, ttl) = (op.ccols().clone(), op.ttl());
    Some(match (actual, op.written().cloned()) {
        (Some(old), Some(new)) => Conditional::Swap { ccols, old, new, ttl },
        (None, Some(value)) => Conditional::Insert { ccols, value, ttl },
        (Some(old), None) => Conditional::Delete { ccols, old },
        (None, None) => return None,
    })
}

impl StorageWrapper for WrongReserver {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        match call {
            Call::Get(key, consistency) => {
                let mut key = key.clone();
                key.pkey = self.pkey(key.pkey);
                Ok(CallAnswer::Value(self.inner.get(&key, consistency, deadline).await?))
            }
            Call::Write(Write::If(pkey, ops)) => {
                let outcome = self.write_if(pkey, ops, deadline).await;
                let forgets = self.defect == DrawDefect::UnsettledForgotten;
                Ok(outcome.map_err(|error| if forgets { forgotten(error) } else { error })?.into())
            }
            call => call.send(&self.inner, deadline).await,
        }
    }

    fn read(&self, mut read: RangeRead) -> RowStream {
        read.pkey = self.pkey(read.pkey);
        read.send(&self.inner)
    }
}

/// The error of a write that was not done.
fn forgotten(error: Error) -> Error {
    match error.kind() {
        ErrorKind::OutcomeUnknown => Error::unavailable("the answer is lost"),
        _ => error,
    }
}
