//! The writes of a group, and all of them as one atomic write.

use istorage::{AtomicBatch, BatchLimits, Key};

use super::{RowWrite, WriteMode};

/// All writes of a group. Each row is written once, or in `rest` and then in `changes`.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupWrites {
    /// The writes of the log, in the order of offsets.
    pub(crate) plog: Vec<RowWrite>,
    /// The other writes, in any order.
    pub(crate) rest: Vec<RowWrite>,
    /// The changes of records that `rest` makes and that are read back, in any order. They are
    /// written when the rest is written.
    pub(crate) changes: Vec<RowWrite>,
}

impl GroupWrites {
    fn all(&self) -> impl Iterator<Item = &RowWrite> {
        self.plog.iter().chain(&self.rest).chain(&self.changes)
    }

    /// Returns whether all writes fit into one atomic write.
    pub(crate) fn fits(&self, limits: BatchLimits) -> bool {
        self.all().count() <= limits.rows
            && self.all().map(RowWrite::size).sum::<usize>() <= limits.bytes
    }

    /// Returns all writes as one atomic write. The conditional ones are in the order of
    /// [`GroupWrites::all`].
    pub(crate) fn atomic_batch(&self) -> AtomicBatch {
        let count = self.all().count();
        let (mut conditionals, mut ordered) = (Vec::with_capacity(count), Vec::new());
        for write in self.all() {
            if write.is_conditional() {
                conditionals.push((write.key.pkey.clone(), write.conditional()));
            } else {
                ordered.push(write.ordered());
            }
        }
        AtomicBatch { conditionals, ordered, puts: Vec::new() }
    }

    /// Gives a conditional write another condition.
    pub(crate) fn set_condition(&mut self, key: &Key, condition: WriteMode) {
        let mut all = self.plog.iter_mut().chain(&mut self.rest).chain(&mut self.changes);
        if let Some(write) = all.find(|write| write.is_conditional() && write.key == *key) {
            write.mode = condition;
        }
    }

    /// Returns the write of a condition of [`GroupWrites::atomic_batch`].
    pub(crate) fn conditional(&self, op: usize) -> Option<&RowWrite> {
        self.all().filter(|write| write.is_conditional()).nth(op)
    }
}
