//! Writing the rows of a command: first the new rows, then the rows that change.

mod changed_row;
mod new_row;
mod schema_check;

use std::collections::HashSet;

use eventlog::{QName, RecordId, Table};

use super::CommandContext;
use crate::{HandlerError, Rejection, RejectionKind, RowChange};

/// The largest number of rows that a command can write.
pub const MOST_ROWS: usize = 4_096;

impl<'g> CommandContext<'g> {
    fn table(&self, name: &QName) -> Result<&'g Table, Rejection> {
        let table = self.application.schema().table(name);
        table.ok_or_else(|| Rejection::invalid(format!("there is no table {name}")))
    }

    pub(super) async fn try_write(
        &mut self,
        rows: Vec<RowChange>,
        first: usize,
    ) -> Result<(), HandlerError> {
        if self.changes.len() + rows.len() > MOST_ROWS {
            let what = format!("a command writes more than {MOST_ROWS} rows");
            return Err(Rejection::new(RejectionKind::TooLarge, what).into());
        }
        for row in &rows {
            if let RowChange::Create { raw, table, .. } = row {
                let id = self.new_id(*raw, table)?;
                self.ids.push((*raw, id));
            }
        }
        let made = self.changes.len();
        let mut created = first;
        let mut updates = Vec::new();
        for row in rows {
            match row {
                RowChange::Create { table, parent, fields, .. } => {
                    let (_, id) = self.ids[created];
                    created += 1;
                    self.create(id, table, parent, fields).await?;
                }
                RowChange::Update { id, table, version, is_active, fields } => {
                    updates.push((self.real(id)?, (table, version), is_active, fields));
                }
            }
        }
        self.check_written_once(first, updates.iter().map(|(id, ..)| *id))?;
        // The new rows are checked only now, because the parent of a row may come after the row.
        for at in made..self.changes.len() {
            self.check(at).await?;
        }
        self.check_stand(made)?;
        for (id, expected, is_active, fields) in updates {
            // Updates read rows. Their futures are boxed, so that a command that only creates rows
            // has a small future.
            Box::pin(self.update(id, expected, is_active, fields)).await?;
        }
        Ok(())
    }

    /// Refuses a record that two rows of one call write: a new row and an update, or two updates.
    /// `first` is the position of the first new row of the call in `ids`.
    ///
    /// A simpler version merges the rows. A sale has the same article on two lines; its handler
    /// reads that one is left, and writes twice that none is left. So one article is sold twice. A
    /// handler that writes after each line reads its own writes, so several calls may write one
    /// record.
    fn check_written_once(
        &self,
        first: usize,
        updated: impl ExactSizeIterator<Item = RecordId>,
    ) -> Result<(), Rejection> {
        if updated.len() == 0 {
            return Ok(());
        }
        let mut written: HashSet<_> = self.ids[first..].iter().map(|(_, id)| *id).collect();
        for id in updated {
            if !written.insert(id) {
                let what = format!(
                    "record {} is in two rows that are written together, and it is not clear \
                     which counts: send all its fields in one row",
                    id.0
                );
                return Err(Rejection::invalid(what));
            }
        }
        Ok(())
    }

    /// The real id of a row: that of the new row if `id` is a raw id, else `id` itself.
    fn real(&mut self, id: RecordId) -> Result<RecordId, Rejection> {
        if id.0 > u64::from(u16::MAX) {
            return Ok(id);
        }
        let real = self.called(id);
        real.ok_or_else(|| Rejection::invalid(format!("no new row has the raw id {}", id.0)))
    }

    /// The real id of the new row with this raw id.
    fn called(&mut self, raw: RecordId) -> Option<RecordId> {
        let at = self.ids_by_raw.find(&self.ids, |(raw, _)| *raw, raw)?;
        Some(self.ids[at].1)
    }

    /// The position of a record among the changes of the command.
    pub(super) fn place(&mut self, id: RecordId) -> Option<usize> {
        self.changes_by_id.find(&self.changes, |change| change.record.id, id)
    }
}
