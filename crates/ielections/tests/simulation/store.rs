//! A store as elections see it. Its rows are always right, but its answers may be lost.

use std::{collections::HashMap, time::Duration};

use bytes::Bytes;
use ielections::{
    ConditionalOutcome, ElectionRow, ObservedLease, Seat,
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
    pub(crate) seat: Seat,
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
            StoreCall::ReadEpoch(seat) => {
                StoreAnswer::EpochRow(self.live(ElectionRow::Epoch(*seat), judge))
            }
            StoreCall::Take { seat, lease, over, ttl } => {
                let expected = over.map(|over| over.to_bytes());
                self.swap(
                    ElectionRow::Lease(*seat),
                    expected,
                    Some(lease.to_bytes()),
                    until(*ttl),
                    judge,
                )
            }
            StoreCall::RaiseEpoch { seat, from, to } => {
                let expected = from.map(|from| from.to_bytes());
                self.swap(ElectionRow::Epoch(*seat), expected, Some(to.to_bytes()), None, judge)
            }
            StoreCall::Renew { seat, lease, ttl } => {
                let bytes = Some(lease.to_bytes());
                self.swap(ElectionRow::Lease(*seat), bytes.clone(), bytes, until(*ttl), judge)
            }
            StoreCall::Release { seat, lease } => {
                self.swap(ElectionRow::Lease(*seat), Some(lease.to_bytes()), None, None, judge)
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
            StoreCall::Take { seat, lease, ttl, .. } | StoreCall::Renew { seat, lease, ttl } => {
                let life = Life { ttl: *ttl, expires: now + *ttl };
                (ElectionRow::Lease(*seat), Some(lease.to_bytes()), Some(life))
            }
            StoreCall::RaiseEpoch { seat, to, .. } => {
                (ElectionRow::Epoch(*seat), Some(to.to_bytes()), None)
            }
            StoreCall::Release { seat, .. } => (ElectionRow::Lease(*seat), None, None),
            StoreCall::Look | StoreCall::ReadEpoch(_) => {
                return self.apply(op, Judge::Clock(now), Duration::ZERO);
            }
        };
        self.write(row, value, life);
        StoreAnswer::Written(ConditionalOutcome::Done)
    }

    /// Returns the leases that an answer to a call shows.
    pub(crate) fn shows(&self, op: &StoreCall) -> Vec<Shown> {
        let is_shown = |seat: Seat| match op {
            StoreCall::Look => true,
            _ => seat_of_lease(op) == Some(seat),
        };
        let shown = |(row, stored): (&ElectionRow, &Stored)| match (*row, stored.life) {
            (ElectionRow::Lease(seat), Some(Life { ttl, .. })) if is_shown(seat) => {
                Some(Shown { seat, version: stored.version, ttl })
            }
            _ => None,
        };
        self.rows.iter().filter_map(shown).collect()
    }

    fn leases(&self, judge: Judge) -> Vec<ObservedLease> {
        let seen = |(row, stored): (&ElectionRow, &Stored)| match (row, stored.life) {
            (ElectionRow::Lease(seat), Some(life)) if judge.lets_live(stored) => {
                let left = match judge {
                    Judge::Clock(now) => life.expires - now,
                    Judge::Node { .. } => life.ttl,
                };
                Some(ObservedLease { seat: *seat, value: stored.value.clone(), left })
            }
            _ => None,
        };
        let mut leases: Vec<ObservedLease> = self.rows.iter().filter_map(seen).collect();
        leases.sort_by_key(|seen| seen.seat);
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

/// Returns the seat of the lease that a call writes.
pub(crate) fn seat_of_lease(op: &StoreCall) -> Option<Seat> {
    match op {
        StoreCall::Take { seat, .. }
        | StoreCall::Renew { seat, .. }
        | StoreCall::Release { seat, .. } => Some(*seat),
        StoreCall::Look | StoreCall::ReadEpoch(_) | StoreCall::RaiseEpoch { .. } => None,
    }
}
