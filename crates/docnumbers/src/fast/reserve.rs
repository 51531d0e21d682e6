//! Reserving a range: one conditional write of the counter and its ledger.

use bytes::Bytes;
use clock::Instant;
use istorage::{Conditional, Conflict, Error, ErrorKind, Outcome, settle::write_if_settled};

use super::held::{HeldRange, StoredRange};
use crate::{
    DocNumberError, Overflow, RangeState, RenderError, Series,
    rows::{CounterKey, CounterRow, DocNumberRows, LedgerRow, Token, places},
};

/// The place of the ledger row among the operations of an attempt. The counter is the first.
const LEDGER_OP: usize = 1;

/// The first operation of an attempt that deletes the ledger row of an issued range.
const FIRST_SPENT_OP: usize = 2;

/// What the node knows of the rows of a counter.
#[derive(Debug, Default)]
pub(crate) struct KnownRows {
    /// The row of the counter when the node saw it last.
    pub(crate) counter: Option<Bytes>,
    /// The ledger rows of ranges whose counters are all issued.
    pub(crate) spent: Vec<StoredRange>,
    /// An attempt that was sent and has no answer. It may be applied, or may still land.
    pub(crate) unsettled: Option<Attempt>,
}

/// A write that reserves a range.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    ops: Vec<Conditional>,
    /// Whether an earlier call sent the attempt and got no answer.
    may_be_applied: bool,
    range: HeldRange,
    /// The row of the counter after the attempt.
    counter: Bytes,
}

/// The parts that a reservation needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserver<'a> {
    pub(crate) series: &'a Series,
    pub(crate) rows: &'a DocNumberRows,
    pub(crate) owner: &'a str,
}

impl Reserver<'_> {
    /// Reserves `count` counters, or fewer if the counter has no more.
    ///
    /// If a write gets no answer until the deadline, the next call sends the same bytes again.
    /// A new attempt instead would lose a range: the first write may have been applied.
    pub(crate) async fn reserve(
        self,
        of: &CounterKey,
        known: &mut KnownRows,
        count: u64,
        until: Instant,
    ) -> Result<HeldRange, DocNumberError> {
        let pkey = self.rows.pkey(of);
        if let Some(range) = self.settle(&pkey, known, until).await? {
            return Ok(range);
        }
        loop {
            known.unsettled = Some(self.attempt(known, count)?);
            if let Some(range) = self.settle(&pkey, known, until).await? {
                return Ok(range);
            }
        }
    }

    /// Sends the unsettled attempt, if there is one, until its outcome is known. Returns the range
    /// if the attempt was applied.
    pub(crate) async fn settle(
        self,
        pkey: &Bytes,
        known: &mut KnownRows,
        until: Instant,
    ) -> Result<Option<HeldRange>, DocNumberError> {
        let Some(attempt) = known.unsettled.clone() else { return Ok(None) };
        // The caller may drop this future while the write is under way.
        known.unsettled = Some(Attempt { may_be_applied: true, ..attempt.clone() });
        let (storage, clock) = (self.rows.storage(), self.rows.clock());
        let (ops, limits) = (attempt.ops.clone(), self.rows.limits(until));
        match write_if_settled(&**storage, clock, pkey.clone(), ops, limits).await {
            Err(error) => {
                if !attempt.may_be_applied && error.kind() != ErrorKind::OutcomeUnknown {
                    known.unsettled = None;
                }
                Err(error.into())
            }
            Ok(Outcome::NotApplied(conflicts)) if !attempt.is_stored(&conflicts) => {
                known.unsettled = None;
                known.learn(&attempt, conflicts)?;
                Ok(None)
            }
            Ok(_) => {
                known.unsettled = None;
                known.counter = Some(attempt.counter);
                // Ranges that were issued since the attempt was made come after these.
                known.spent.drain(..attempt.ops.len() - FIRST_SPENT_OP);
                Ok(Some(attempt.range))
            }
        }
    }

    /// The write that reserves the next `count` counters.
    fn attempt(self, known: &KnownRows, count: u64) -> Result<Attempt, DocNumberError> {
        let next = match &known.counter {
            Some(row) => CounterRow::read(row)?.next,
            None => self.series.definition().start,
        };
        let until = self.end_of_range(next, count)?;
        let token = Token::new(self.rows.clock());
        let counter = CounterRow { next: until, token }.bytes();
        let (state, owner) = (RangeState::Open, self.owner.to_owned());
        let reserved_at = self.rows.clock().wall();
        let row = LedgerRow { until, state, reserved_at, owner, token }.bytes();
        let (ccols, new, ttl) = (places::COUNTER, counter.clone(), None);
        let mut ops = vec![
            match known.counter.clone() {
                None => Conditional::Insert { ccols, value: new, ttl },
                Some(old) => Conditional::Swap { ccols, old, new, ttl },
            },
            Conditional::Insert { ccols: places::ledger(next), value: row.clone(), ttl },
        ];
        ops.extend(known.spent.iter().map(StoredRange::delete));
        let range = HeldRange { ledger: StoredRange { first: next, row }, next, until };
        Ok(Attempt { ops, may_be_applied: false, range, counter })
    }

    /// The end of a range of at most `count` counters that begins at `next`.
    fn end_of_range(self, next: u64, count: u64) -> Result<u64, RenderError> {
        let (definition, width) = (self.series.definition(), self.series.counter_width());
        let (highest, at_end) = match definition.overflow {
            Overflow::Widen => (u64::MAX - 1, RenderError::CounterEnd),
            // A width of 19 digits fits.
            Overflow::Error => (
                10_u64.saturating_pow(width.into()) - 1,
                RenderError::CounterOverflow { counter: next, width },
            ),
        };
        let step = definition.step;
        let rest = highest.checked_sub(next).ok_or(at_end)?;
        let more = (rest / step).min(count.saturating_sub(1));
        Ok((next + more * step).saturating_add(step))
    }
}

impl StoredRange {
    /// The removal of the ledger row.
    pub(crate) fn delete(&self) -> Conditional {
        Conditional::Delete { ccols: places::ledger(self.first), old: self.row.clone() }
    }
}

impl Attempt {
    /// The number of values of the range.
    pub(crate) fn values(&self, step: u64) -> u64 {
        self.range.unissued(step)
    }

    /// Whether the rows show that the attempt was applied: the ledger row is there. Its token is
    /// random, and no other node removes it. Another node may have changed the counter since.
    fn is_stored(&self, conflicts: &[Conflict]) -> bool {
        let ledger = conflicts.iter().find(|conflict| conflict.op == LEDGER_OP);
        ledger.is_some_and(|conflict| conflict.actual.as_ref() == Some(&self.range.ledger.row))
    }
}

impl KnownRows {
    /// Takes over the rows that kept an attempt from being applied.
    fn learn(&mut self, attempt: &Attempt, conflicts: Vec<Conflict>) -> Result<(), Error> {
        let mut has_learned = false;
        for Conflict { op, actual } in conflicts {
            if op == 0 {
                if actual.is_none() {
                    return Err(Error::corrupt(
                        "the row of a counter that was reserved is missing",
                    ));
                }
                has_learned = true;
                self.counter = actual;
            } else if op > LEDGER_OP {
                // An operator removed the ledger row of an issued range, which needs no row.
                has_learned = true;
                let gone = attempt.ops[op].ccols();
                self.spent.retain(|spent| places::ledger(spent.first) != *gone);
            }
        }
        if has_learned {
            return Ok(());
        }
        let first = attempt.range.ledger.first;
        Err(Error::corrupt(format!(
            "the ledger has a row for the range from {first}, but the counter does not"
        )))
    }
}

impl From<Error> for DocNumberError {
    fn from(error: Error) -> DocNumberError {
        match error.kind() {
            ErrorKind::Closed => DocNumberError::Closed,
            _ => DocNumberError::Storage(error.into()),
        }
    }
}
