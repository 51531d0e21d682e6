//! What a request writes, given the rows that it finds. Nothing is written here.
//!
//! Invariant: a request looks at every row that it writes before it is accepted, rows that are put
//! too. So a put over a row of another kind, or over a damaged row, is refused before the answer.
//! The filer can refuse nothing any more.

use bytes::Bytes;
use istorage::{AtomicBatch, Conditional, Error, OrderedPut, Outcome, Put, Result};

use crate::{
    layout::{self, FileRow, FileRowKind, Keyspace},
    mem_table::MemRow,
    time::Moment,
};

/// The rows that a request writes, by key.
pub(crate) type RowWrites = Vec<(Bytes, MemRow)>;

/// A request, its keyspace and its moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judge<'r> {
    pub(crate) keyspace: &'r Keyspace,
    pub(crate) now: Moment,
}

impl Judge<'_> {
    /// Checks all conditions and orders of a batch. Returns what the caller is told, and what is
    /// written: nothing if a condition fails.
    pub(crate) fn judge(
        self,
        batch: &AtomicBatch,
        mut find: impl FnMut(&[u8]) -> Result<MemRow>,
    ) -> Result<(Outcome, RowWrites)> {
        let mut writes = Vec::with_capacity(batch.conditionals.len() + batch.puts.len());
        let outcome = self.conditions(&batch.conditionals, &mut find, &mut writes)?;
        for put in &batch.ordered {
            self.ordered(put, &mut find, &mut writes)?;
        }
        if !outcome.is_applied() {
            return Ok((outcome, Vec::new()));
        }
        for put in &batch.puts {
            self.plain(put, &mut find, &mut writes)?;
        }
        Ok((outcome, writes))
    }

    fn conditions(
        self,
        ops: &[(Bytes, Conditional)],
        find: &mut impl FnMut(&[u8]) -> Result<MemRow>,
        writes: &mut RowWrites,
    ) -> Result<Outcome> {
        istorage::check_conditions(ops.iter().map(|(_, op)| op), |at, op| {
            let key = layout::row_key(&ops[at].0, op.ccols());
            let found = find(&key)?;
            let row = found.as_ref().map(|row| self.keyspace.parse_row(&key, row)).transpose()?;
            let current = row.and_then(|row| row.value_at(self.now));
            let expires = op.ttl().map(|ttl| self.now.after(ttl));
            let kind = FileRowKind::Conditional { expires };
            writes.push(written(key, op.written().map(|value| FileRow { kind, value })));
            Ok(current)
        })
    }

    fn ordered(
        self,
        put: &OrderedPut,
        find: &mut impl FnMut(&[u8]) -> Result<MemRow>,
        writes: &mut RowWrites,
    ) -> Result<()> {
        let key = layout::row_key(&put.key.pkey, &put.key.ccols);
        let ours = put.order.rank();
        let expires = put.ttl.map(|ttl| self.now.after(ttl));
        let kind = FileRowKind::Ordered { rank: ours, expires };
        if let Some(found) = find(&key)? {
            let stored = self.keyspace.parse_row(&key, &found)?;
            match stored.kind {
                _ if !stored.is_live(self.now) => {}
                // The row hides the ordered write.
                FileRowKind::Plain | FileRowKind::Conditional { .. } => return Ok(()),
                FileRowKind::Ordered { rank, .. } => {
                    if rank == ours && stored.value != put.value {
                        let message = "a row was written with another value and the same order";
                        return Err(Error::invalid(format!("{message}, {rank}")));
                    }
                    // A write that is sent again with a TTL gets the expiry of the last attempt.
                    if rank > ours || stored.kind == kind {
                        return Ok(());
                    }
                }
            }
        }
        writes.push(written(key, Some(FileRow { kind, value: &put.value })));
        Ok(())
    }

    fn plain(
        self,
        put: &Put,
        find: &mut impl FnMut(&[u8]) -> Result<MemRow>,
        writes: &mut RowWrites,
    ) -> Result<()> {
        let key = layout::row_key(&put.key.pkey, &put.key.ccols);
        let kind = FileRowKind::Plain;
        if let Some(found) = find(&key)? {
            let stored = self.keyspace.parse_row(&key, &found)?;
            if stored.is_live(self.now) && stored.kind != kind {
                return Err(kind_conflict(stored.kind));
            }
        }
        writes.push(written(key, Some(FileRow { kind, value: &put.value })));
        Ok(())
    }
}

fn written(key: Vec<u8>, row: Option<FileRow<'_>>) -> (Bytes, MemRow) {
    let row = row.map(|row| {
        let mut bytes = Vec::new();
        row.write(&key, &mut bytes);
        Bytes::from(bytes)
    });
    (Bytes::from(key), row)
}

fn kind_conflict(actual: FileRowKind) -> Error {
    Error::invalid(format!(
        "a row that is to be written plainly is already {}: a plain row is always plain",
        actual.name()
    ))
}
