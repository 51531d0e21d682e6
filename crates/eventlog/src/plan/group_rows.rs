//! The rows of a group, and all of them as one atomic write.

use istorage::{AtomicBatch, BatchLimits};

use super::RowWrite;

/// All rows of a group, each once.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupRows {
    /// The rows of the log, in the order of offsets.
    pub(crate) plog: Vec<RowWrite>,
    /// The other rows, in any order.
    pub(crate) rest: Vec<RowWrite>,
}

impl GroupRows {
    fn all(&self) -> impl Iterator<Item = &RowWrite> {
        self.plog.iter().chain(&self.rest)
    }

    /// Returns whether all rows fit into one atomic write.
    pub(crate) fn fits(&self, limits: BatchLimits) -> bool {
        self.plog.len() + self.rest.len() <= limits.rows
            && self.all().map(RowWrite::bytes).sum::<usize>() <= limits.bytes
    }

    /// Returns all rows as one atomic write. The conditional rows are in the order of
    /// [`GroupRows::all`].
    pub(crate) fn atomic_batch(&self) -> AtomicBatch {
        let rows = self.plog.len() + self.rest.len();
        let (mut conditionals, mut ordered) = (Vec::with_capacity(rows), Vec::new());
        for row in self.all() {
            if row.is_conditional() {
                conditionals.push((row.key.pkey.clone(), row.conditional()));
            } else {
                ordered.push(row.ordered());
            }
        }
        AtomicBatch { conditionals, ordered, puts: Vec::new() }
    }

    /// Returns the row of a condition of [`GroupRows::atomic_batch`].
    pub(crate) fn conditional(&self, op: usize) -> Option<&RowWrite> {
        self.all().filter(|row| row.is_conditional()).nth(op)
    }
}
