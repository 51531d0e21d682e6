//! A model of the calls on a disk, and of the rows that may be left after a power failure.

use std::{collections::BTreeMap, time::Duration};

pub(super) type RowKey = (&'static str, u64);
/// All rows, with the number of the call that wrote each.
pub(super) type Rows = BTreeMap<RowKey, u64>;

/// The changes of a call; `None` removes a row.
pub(super) type Changes = Vec<(RowKey, Option<u64>)>;

/// A call, and its outcome.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) changes: Changes,
    /// The moment of the disk when the call was answered; `None` if the call failed.
    pub(super) done: Option<usize>,
}

/// Calls that were sent together. No other call was under way.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) began: usize,
    /// The time of all calls of the step.
    pub(super) time: Duration,
    pub(super) calls: Vec<Call>,
    /// The moment when all calls were answered and their outcomes were known.
    pub(super) ended: usize,
    /// The rows that were stored at that moment.
    pub(super) after: Rows,
}

/// The steps that were done on a disk.
#[derive(Debug)]
pub(super) struct History {
    /// The moment when the file was open. `start` and `before` are the time and the stored rows of
    /// that moment.
    pub(super) opened: usize,
    pub(super) start: Duration,
    pub(super) before: Rows,
    pub(super) steps: Vec<Step>,
    pub(super) leases: Leases,
    /// How often the filer began to remove expired rows while it rested.
    pub(super) purges: usize,
}

/// Until when each lease lives at least, by the number of the call that wrote it.
#[derive(Clone, Debug, Default)]
pub(super) struct Leases(pub(super) BTreeMap<u64, Duration>);

impl Leases {
    /// Whether a lease may be over at this time. The time of a file is never ahead.
    pub(super) fn may_be_over(&self, call: u64, time: Duration) -> bool {
        self.0.get(&call).is_some_and(|until| *until <= time)
    }

    /// Whether all rows that must be there at this time are found, and no others. An expired lease
    /// may appear once more after a power failure.
    pub(super) fn allow(&self, rows: &Rows, found: &Rows, time: Duration) -> bool {
        let is_right = |(key, call): (&RowKey, &u64)| match rows.get(key) {
            Some(there) => there == call,
            None => self.may_be_over(*call, time),
        };
        let is_there =
            |(key, call): (&RowKey, &u64)| found.contains_key(key) || self.may_be_over(*call, time);
        found.iter().all(is_right) && rows.iter().all(is_there)
    }
}

impl History {
    /// Whether these rows may be found if the power is lost at this moment, after the file was
    /// open.
    pub(super) fn allows(&self, moment: usize, found: &Rows) -> bool {
        let (mut rows, mut time) = (&self.before, self.start);
        for step in self.steps.iter().take_while(|step| step.began < moment) {
            if step.ended > moment {
                return step.allows(rows, moment, found, &self.leases);
            }
            (rows, time) = (&step.after, step.time);
        }
        self.leases.allow(rows, found, time)
    }

    /// How many leases were stored after one step, and were over and gone after the next.
    pub(super) fn expired(&self) -> usize {
        let pairs = self.steps.iter().zip(self.steps.iter().skip(1));
        let gone = pairs.flat_map(|(before, step)| {
            before.after.iter().filter(|(key, call)| {
                !step.after.contains_key(*key) && self.leases.may_be_over(**call, step.time)
            })
        });
        gone.count()
    }

    /// The time at a moment of the disk.
    pub(super) fn time_at(&self, moment: usize) -> Duration {
        let step = self.steps.iter().take_while(|step| step.began < moment).last();
        step.map_or(self.start, |step| step.time)
    }
}

impl Step {
    /// Whether these rows are the earlier rows, with all answered calls and any of the other calls.
    pub(super) fn allows(
        &self,
        before: &Rows,
        moment: usize,
        found: &Rows,
        leases: &Leases,
    ) -> bool {
        let is_done = |call: &&Call| call.done.is_some_and(|done| done <= moment);
        let (surely, perhaps): (Vec<_>, Vec<_>) = self.calls.iter().partition(is_done);
        let mut rows = before.clone();
        surely.iter().for_each(|call| apply(&mut rows, &call.changes));
        subsets(&perhaps).any(|calls| {
            let mut rows = rows.clone();
            calls.iter().for_each(|call| apply(&mut rows, &call.changes));
            leases.allow(&rows, found, self.time)
        })
    }
}

fn subsets<'a>(calls: &'a [&'a Call]) -> impl Iterator<Item = Vec<&'a Call>> {
    (0..1_u32 << calls.len()).map(move |bits| {
        let chosen = calls.iter().enumerate().filter(|(at, _)| bits & 1 << at != 0);
        chosen.map(|(_, call)| *call).collect()
    })
}

fn apply(rows: &mut Rows, changes: &Changes) {
    for (key, value) in changes {
        match value {
            Some(value) => drop(rows.insert(*key, *value)),
            None => drop(rows.remove(key)),
        }
    }
}
