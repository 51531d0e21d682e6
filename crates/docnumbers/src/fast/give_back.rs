//! Giving back the counters that a node holds and no longer needs.

use std::collections::VecDeque;

use bytes::Bytes;
use clock::Instant;
use istorage::{Conditional, Conflict, Error, Outcome, settle::write_if_settled};

use super::{
    SeriesEnd,
    held::{HeldRange, HeldRanges, StoredRange},
    reserve::{KnownRows, Reserver},
};
use crate::{
    DocNumberError, RangeState,
    rows::{CounterKey, CounterRow, LedgerRow, Token, places},
};

/// A counter that the node gives up, with everything that it holds of the counter.
#[derive(Debug)]
pub(crate) struct GivenUp {
    pub(crate) of: CounterKey,
    pub(crate) held: HeldRanges,
    pub(crate) known: KnownRows,
}

/// The write that gives up ranges.
#[derive(Debug, Default)]
struct Plan {
    /// The operations on ledger rows, and then the one on the counter.
    ops: Vec<Conditional>,
    ledger_ops: usize,
    end: SeriesEnd,
}

impl Reserver<'_> {
    /// Gives the counters of a node back, so that the next reservation takes them. The ledger keeps
    /// the counters that cannot be given back: other nodes have reserved counters after them.
    ///
    /// Invariant: the counter goes back only over counters that nobody has issued. A simpler
    /// version writes the lower counter without a condition. Node A holds 300 to 399 and reads the
    /// counter 400; node B reserves 400 to 499; node A writes 350; so the next node reserves 400 a
    /// second time. Here the write of node A expects the exact bytes that it read, and is refused.
    pub(crate) async fn give_back(
        self,
        given_up: GivenUp,
        until: Instant,
    ) -> Result<SeriesEnd, DocNumberError> {
        let GivenUp { of, mut held, mut known } = given_up;
        let pkey = self.rows.pkey(&of);
        if let Some(range) = self.settle(&pkey, &mut known, until).await? {
            held.push(range);
        }
        let (ranges, mut spent) = held.into_parts();
        spent.append(&mut known.spent);
        if ranges.is_empty() && spent.is_empty() {
            return Ok(SeriesEnd::default());
        }
        let mut counter = known.counter;
        loop {
            if counter.is_none() {
                counter = self.rows.counter_row(&pkey, until).await?;
            }
            let missing = || Error::corrupt("the counter of a reserved range has no row");
            let plan = self.plan(counter.take().ok_or_else(missing)?, &ranges, &spent)?;
            let (storage, limits) = (self.rows.storage(), self.rows.limits(until));
            let (clock, ops) = (self.rows.clock(), plan.ops.clone());
            match write_if_settled(&**storage, clock, pkey.clone(), ops, limits).await? {
                Outcome::NotApplied(conflicts) if !plan.is_done(&conflicts)? => {}
                _ => return Ok(plan.end),
            }
        }
    }

    /// The write that gives up `ranges`, if the counter has the bytes `row`.
    fn plan(
        self,
        row: Bytes,
        ranges: &VecDeque<HeldRange>,
        spent: &[StoredRange],
    ) -> Result<Plan, Error> {
        let step = self.series.definition().step;
        let mut next = CounterRow::read(&row)?.next;
        let at = next;
        let mut plan = Plan::default();
        plan.ops.extend(spent.iter().map(StoredRange::delete));
        // From the last range to the first: a range can be given back only if all later ranges are.
        for range in ranges.iter().rev() {
            let unissued = range.unissued(step);
            if range.until == next {
                next = range.next;
                plan.end.given_back += unissued;
                plan.ops.push(range.ledger.delete());
            } else {
                plan.end.not_issued += unissued;
                plan.ops.extend(self.not_issued(range)?);
            }
        }
        plan.ledger_ops = plan.ops.len();
        if next != at {
            let token = Token::new(self.rows.clock());
            let new = CounterRow { next, token }.bytes();
            plan.ops.push(Conditional::Swap { ccols: places::COUNTER, old: row, new, ttl: None });
        }
        Ok(plan)
    }

    /// The ledger rows that keep the unissued counters of a range.
    fn not_issued(self, range: &HeldRange) -> Result<Vec<Conditional>, Error> {
        let HeldRange { ledger, next, until } = range;
        let LedgerRow { reserved_at, owner, .. } = LedgerRow::read(&ledger.row)?;
        let token = Token::new(self.rows.clock());
        let row =
            LedgerRow { until: *until, state: RangeState::NotIssued, reserved_at, owner, token };
        let (ccols, value, ttl) = (places::ledger(*next), row.bytes(), None);
        Ok(if *next == ledger.first {
            vec![Conditional::Swap { ccols, old: ledger.row.clone(), new: value, ttl }]
        } else {
            vec![ledger.delete(), Conditional::Insert { ccols, value, ttl }]
        })
    }
}

impl Plan {
    /// Whether the rows show that the write was applied: no ledger row is as before. Its answer was
    /// lost then, and another node has changed the counter since.
    fn is_done(&self, conflicts: &[Conflict]) -> Result<bool, Error> {
        let changed = conflicts.iter().filter(|conflict| conflict.op < self.ledger_ops).count();
        if changed > 0 && changed < self.ledger_ops {
            return Err(Error::corrupt("some rows of the ledger were changed by another program"));
        }
        Ok(changed > 0)
    }
}

impl GivenUp {
    /// The number of values that may be lost if this is not given back.
    pub(crate) fn unissued(&self, step: u64) -> u64 {
        let unsettled = self.known.unsettled.as_ref();
        self.held.unissued(step) + unsettled.map_or(0, |attempt| attempt.values(step))
    }

    /// Whether a row must change for this counter.
    pub(crate) fn is_worth_a_write(&self) -> bool {
        !self.held.is_empty() || !self.known.spent.is_empty() || self.known.unsettled.is_some()
    }
}
