//! A store as elections see it. Its rows are always right, but its answers may be lost.

use std::{collections::HashMap, time::Duration};

use bytes::Bytes;
use ielections::{
    ConditionalOutcome, ElectionRow, ObservedLease, Slot,
    engine::{StoreAnswer, StoreCall},
};

#[derive(Clone, Debug)]
struct Stored {
    value: Bytes,
    life: Option<Life>,
    /// The number of the write that made the row. No two writes share a number.
    version: u64,
}

#[derive(Clone, Copy, Debug)]
struct Life {
    ttl: Duration,
    /// The time of expiry, by the store's clock.
    expires: Duration,
}

/// The judge of the expiry of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Judge {
    /// The store judges, by its clock.
    Clock(Duration),
    /// The node that calls judges: a row of this version has expired for the node.
    Node { expired: Option<u64> },
}

impl Judge {
    fn now(self) -> Duration {
        match self {
            Judge::Clock(now) => now,
            Judge::Node { .. } => Duration::ZERO,
        }
    }

    fn lets_live(self, stored: &Stored) -> bool {
        match (self, stored.life) {
            (_, None) => true,
            (Judge::Clock(now), Some(life)) => life.expires > now,
            (Judge::Node { expired }, Some(_)) => Some(stored.version) != expired,
        }
    }
}

/// A lease as it is shown to a node that watches leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) slot: Slot,
    pub(crate) version: u64,
    pub(crate) ttl: Duration,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    rows: HashMap<ElectionRow, Stored>,
    writes: u64,
}

impl Store {
    /// Applies a call. The store's clock rounds lifetimes up by `rounding`.
    pub(crate) fn apply(
        &mut self,
        op: &StoreCall,
        judge: Judge,
        rounding: Duration,
    ) -> StoreAnswer {
        let until = |ttl: Duration| Some(Life { ttl, expires: judge.now() + ttl + rounding });
        match op {
            StoreCall::Look => StoreAnswer::Leases(self.leases(judge)),
            StoreCall::ReadEpoch(slot) => {
                StoreAnswer::EpochRow(self.live(ElectionRow::Epoch(*slot), judge))
            }
            StoreCall::Take { slot, lease, over, ttl } => {
                let expected = over.map(|over| over.to_bytes());
                self.swap(
                    ElectionRow::Lease(*slot),
                    expected,
                    Some(lease.to_bytes()),
                    until(*ttl),
                    judge,
                )
            }
            StoreCall::RaiseEpoch { slot, from, to } => {
                let expected = from.map(|from| from.to_bytes());
                self.swap(ElectionRow::Epoch(*slot), expected, Some(to.to_bytes()), None, judge)
            }
            StoreCall::Renew { slot, lease, ttl } => {
                let bytes = Some(lease.to_bytes());
                self.swap(ElectionRow::Lease(*slot), bytes.clone(), bytes, until(*ttl), judge)
            }
            StoreCall::Release { slot, lease } => {
                self.swap(ElectionRow::Lease(*slot), Some(lease.to_bytes()), None, None, judge)
            }
        }
    }

    /// Returns the refusal that [`Store::apply`] would give to a conditional write, without
    /// applying the write.
    pub(crate) fn would_refuse(&self, op: &StoreCall, judge: Judge) -> Option<StoreAnswer> {
        let answer = self.clone().apply(op, judge, Duration::ZERO);
        matches!(answer, StoreAnswer::Written(ConditionalOutcome::Refused(_))).then_some(answer)
    }

    /// Writes a row without comparing it, as a store does that reads first and writes afterwards.
    pub(crate) fn force(&mut self, op: &StoreCall, now: Duration) -> StoreAnswer {
        let (row, value, life) = match op {
            StoreCall::Take { slot, lease, ttl, .. } | StoreCall::Renew { slot, lease, ttl } => {
                let life = Life { ttl: *ttl, expires: now + *ttl };
                (ElectionRow::Lease(*slot), Some(lease.to_bytes()), Some(life))
            }
            StoreCall::RaiseEpoch { slot, to, .. } => {
                (ElectionRow::Epoch(*slot), Some(to.to_bytes()), None)
            }
            StoreCall::Release { slot, .. } => (ElectionRow::Lease(*slot), None, None),
            StoreCall::Look | StoreCall::ReadEpoch(_) => {
                return self.apply(op, Judge::Clock(now), Duration::ZERO);
            }
        };
        self.write(row, value, life);
        StoreAnswer::Written(ConditionalOutcome::Done)
    }

    /// Returns the leases that an answer to a call shows.
    pub(crate) fn shows(&self, op: &StoreCall) -> Vec<Shown> {
        let is_shown = |slot: Slot| match op {
            StoreCall::Look => true,
            _ => slot_of_lease(op) == Some(slot),
        };
        let shown = |(row, stored): (&ElectionRow, &Stored)| match (*row, stored.life) {
            (ElectionRow::Lease(slot), Some(Life { ttl, .. })) if is_shown(slot) => {
                Some(Shown { slot, version: stored.version, ttl })
            }
            _ => None,
        };
        self.rows.iter().filter_map(shown).collect()
    }

    fn leases(&self, judge: Judge) -> Vec<ObservedLease> {
        let seen = |(row, stored): (&ElectionRow, &Stored)| match (row, stored.life) {
            (ElectionRow::Lease(slot), Some(life)) if judge.lets_live(stored) => {
                let left = match judge {
                    Judge::Clock(now) => life.expires - now,
                    Judge::Node { .. } => life.ttl,
                };
                Some(ObservedLease { slot: *slot, value: stored.value.clone(), left })
            }
            _ => None,
        };
        let mut leases: Vec<ObservedLease> = self.rows.iter().filter_map(seen).collect();
        leases.sort_by_key(|seen| seen.slot);
        leases
    }

    fn live(&self, row: ElectionRow, judge: Judge) -> Option<Bytes> {
        let stored = self.rows.get(&row)?;
        judge.lets_live(stored).then(|| stored.value.clone())
    }

    fn swap(
        &mut self,
        row: ElectionRow,
        expected: Option<Bytes>,
        value: Option<Bytes>,
        life: Option<Life>,
        judge: Judge,
    ) -> StoreAnswer {
        let there = self.live(row, judge);
        if there != expected {
            return StoreAnswer::Written(ConditionalOutcome::Refused(there));
        }
        self.write(row, value, life);
        StoreAnswer::Written(ConditionalOutcome::Done)
    }

    fn write(&mut self, row: ElectionRow, value: Option<Bytes>, life: Option<Life>) {
        self.writes += 1;
        match value {
            Some(value) => self.rows.insert(row, Stored { value, life, version: self.writes }),
            None => self.rows.remove(&row),
        };
    }
}

/// Returns the slot of the lease that a call writes.
pub(crate) fn slot_of_lease(op: &StoreCall) -> Option<Slot> {
    match op {
        StoreCall::Take { slot, .. }
        | StoreCall::Renew { slot, .. }
        | StoreCall::Release { slot, .. } => Some(*slot),
        StoreCall::Look | StoreCall::ReadEpoch(_) | StoreCall::RaiseEpoch { .. } => None,
    }
}
