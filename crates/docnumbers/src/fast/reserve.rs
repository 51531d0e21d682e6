//! Reserving a range: one conditional write of the counter and its ledger.

use bytes::Bytes;
use clock::Instant;
use istorage::{Conditional, Conflict, Error, ErrorKind, Outcome, settle::write_if_settled};

use super::held::{HeldRange, StoredRange};
use crate::{
    DrawError, Overflow, RangeState, RenderError, Series,
    rows::{CounterKey, CounterRow, LedgerRow, NumberRows, Token, places},
};

/// The place of the ledger row among the operations of an attempt. The counter is the first.
const LEDGER_OP: usize = 1;

/// What the node knows of the rows of a counter.
#[derive(Debug, Default)]
pub(crate) struct KnownRows {
    /// The row of the counter when the node saw it last.
    pub(crate) counter: Option<Bytes>,
    /// The ledger rows of ranges whose counters are all issued.
    pub(crate) spent: Vec<StoredRange>,
    /// An attempt without an answer. It may be applied, or may still land.
    pub(crate) unsettled: Option<Attempt>,
}

/// A write that reserves a range.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    ops: Vec<Conditional>,
    range: HeldRange,
    /// The row of the counter after the attempt.
    counter: Bytes,
}

/// The place in which ranges are reserved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserver<'a> {
    pub(crate) series: &'a Series,
    pub(crate) rows: &'a NumberRows,
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
    ) -> Result<HeldRange, DrawError> {
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
    ) -> Result<Option<HeldRange>, DrawError> {
        let Some(attempt) = known.unsettled.clone() else { return Ok(None) };
        let (storage, clock) = (self.rows.storage(), self.rows.clock());
        let (ops, limits) = (attempt.ops.clone(), self.rows.limits(until));
        let outcome = write_if_settled(&**storage, clock, pkey.clone(), ops, limits).await?;
        known.unsettled = None;
        match outcome {
            Outcome::NotApplied(conflicts) if !attempt.is_stored(&conflicts) => {
                known.learn(&attempt, conflicts)?;
                Ok(None)
            }
            _ => {
                known.counter = Some(attempt.counter);
                known.spent.clear();
                Ok(Some(attempt.range))
            }
        }
    }

    /// The write that reserves the next `count` counters.
    fn attempt(self, known: &KnownRows, count: u64) -> Result<Attempt, DrawError> {
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
        ops.extend(known.spent.iter().map(|spent| spent.delete()));
        let range = HeldRange { ledger: StoredRange { first: next, row }, next, until };
        Ok(Attempt { ops, range, counter })
    }

    /// The end of a range of at most `count` counters that begins at `next`.
    fn end_of_range(self, next: u64, count: u64) -> Result<u64, RenderError> {
        let (definition, width) = (self.series.definition(), self.series.counter_width());
        let highest = match definition.overflow {
            Overflow::Widen => u64::MAX - 1,
            // A width of 19 digits fits.
            Overflow::Error => 10_u64.saturating_pow(width.into()) - 1,
        };
        let step = definition.step;
        let Some(rest) = highest.checked_sub(next) else {
            return Err(RenderError::CounterOverflow { counter: next, width });
        };
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
    /// Whether the rows show that the attempt was applied: the ledger row is there. Its token is
    /// random, and only the node that wrote a ledger row removes it. Another node may have changed
    /// the counter since.
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
                has_learned = true;
                self.counter = actual;
            } else if op > LEDGER_OP {
                // Somebody removed the ledger row of an issued range, which needs no row.
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

impl From<Error> for DrawError {
    fn from(error: Error) -> DrawError {
        match error.kind() {
            ErrorKind::Closed => DrawError::Closed,
            _ => DrawError::Storage(error.into()),
        }
    }
}
