//! A store as the elections see it: its rows are always right, its answers need not come.

use std::{collections::HashMap, time::Duration};

use bytes::Bytes;
use ielections::{
    Row, Seen, Written,
    engine::{Answer, Op},
};

#[derive(Debug)]
struct Stored {
    value: Bytes,
    /// By the store's clock.
    expires: Option<Duration>,
}

#[derive(Debug, Default)]
pub(crate) struct Store {
    rows: HashMap<Row, Stored>,
}

impl Store {
    /// Does what is asked at a moment of the clock that judges, which rounds lives up by `rounding`.
    pub(crate) fn apply(&mut self, op: &Op, now: Duration, rounding: Duration) -> Answer {
        let until = |ttl: Duration| Some(now + ttl + rounding);
        match op {
            Op::Look => Answer::Leases(self.leases(now)),
            Op::ReadEpoch(slot) => Answer::Row(self.live(Row::Epoch(*slot), now)),
            Op::Take { slot, lease, over, ttl } => {
                let expected = over.map(|over| over.to_bytes());
                self.swap(Row::Lease(*slot), expected, Some(lease.to_bytes()), until(*ttl), now)
            }
            Op::RaiseEpoch { slot, from, to } => {
                let expected = from.map(|from| from.to_bytes());
                self.swap(Row::Epoch(*slot), expected, Some(to.to_bytes()), None, now)
            }
            Op::Renew { slot, lease, ttl } => {
                let bytes = Some(lease.to_bytes());
                self.swap(Row::Lease(*slot), bytes.clone(), bytes, until(*ttl), now)
            }
            Op::Release { slot, lease } => {
                self.swap(Row::Lease(*slot), Some(lease.to_bytes()), None, None, now)
            }
        }
    }

    /// What [`Store::apply`] would answer to a write that expects something, without doing it.
    pub(crate) fn would_refuse(&self, op: &Op, now: Duration) -> Option<Answer> {
        let mut copy = Store::default();
        for (row, stored) in &self.rows {
            let stored = Stored { value: stored.value.clone(), expires: stored.expires };
            copy.rows.insert(*row, stored);
        }
        let answer = copy.apply(op, now, Duration::ZERO);
        matches!(answer, Answer::Written(Written::Refused(_))).then_some(answer)
    }

    /// Writes whatever stands there: what a store does that reads first and then puts.
    pub(crate) fn force(&mut self, op: &Op, now: Duration) -> Answer {
        let (row, value, expires) = match op {
            Op::Take { slot, lease, ttl, .. } | Op::Renew { slot, lease, ttl } => {
                (Row::Lease(*slot), Some(lease.to_bytes()), Some(now + *ttl))
            }
            Op::RaiseEpoch { slot, to, .. } => (Row::Epoch(*slot), Some(to.to_bytes()), None),
            Op::Release { slot, .. } => (Row::Lease(*slot), None, None),
            Op::Look | Op::ReadEpoch(_) => return self.apply(op, now, Duration::ZERO),
        };
        self.write(row, value, expires);
        Answer::Written(Written::Done)
    }

    fn leases(&self, now: Duration) -> Vec<Seen> {
        let seen = |(row, stored): (&Row, &Stored)| match (row, stored.expires) {
            (Row::Lease(slot), Some(expires)) if expires > now => {
                Some(Seen { slot: *slot, value: stored.value.clone(), left: expires - now })
            }
            _ => None,
        };
        let mut leases: Vec<Seen> = self.rows.iter().filter_map(seen).collect();
        leases.sort_by_key(|seen| seen.slot);
        leases
    }

    fn live(&self, row: Row, now: Duration) -> Option<Bytes> {
        let stored = self.rows.get(&row)?;
        let is_live = stored.expires.is_none_or(|expires| expires > now);
        is_live.then(|| stored.value.clone())
    }

    fn swap(
        &mut self,
        row: Row,
        expected: Option<Bytes>,
        value: Option<Bytes>,
        expires: Option<Duration>,
        now: Duration,
    ) -> Answer {
        let there = self.live(row, now);
        if there != expected {
            return Answer::Written(Written::Refused(there));
        }
        self.write(row, value, expires);
        Answer::Written(Written::Done)
    }

    fn write(&mut self, row: Row, value: Option<Bytes>, expires: Option<Duration>) {
        match value {
            Some(value) => self.rows.insert(row, Stored { value, expires }),
            None => self.rows.remove(&row),
        };
    }
}
