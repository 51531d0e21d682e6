//! Writing the rows of one call: first the new rows, then the rows that change.

mod changed_row;
mod new_row;
mod schema_check;

use std::collections::HashSet;

use eventlog::RecordId;

use self::changed_row::RowUpdate;
use super::{EventDraft, MOST_ROWS};
use crate::{HandlerError, Rejection, RejectionKind, RowChange};

/// Adds the rows to the draft.
pub(super) async fn write(
    draft: &mut EventDraft<'_>,
    rows: Vec<RowChange>,
) -> Result<(), HandlerError> {
    if draft.changes().len() + rows.len() > MOST_ROWS {
        let what = format!("a command writes more than {MOST_ROWS} rows");
        return Err(Rejection::new(RejectionKind::TooLarge, what).into());
    }
    // 1. All new rows get their ids, because any row may name them.
    let (first_id, first_change) = (draft.ids().len(), draft.changes().len());
    for row in &rows {
        if let RowChange::Create { raw, table, .. } = row {
            let id = new_row::new_id(draft, *raw, table)?;
            draft.add_id(*raw, id);
        }
    }
    // 2. The new rows.
    let mut created = first_id;
    let mut updates = Vec::new();
    for row in rows {
        match row {
            RowChange::Create { table, parent, fields, .. } => {
                let (_, id) = draft.ids()[created];
                created += 1;
                new_row::create(draft, id, table, parent, fields).await?;
            }
            RowChange::Update { id, table, version, is_active, fields } => {
                let id = draft.real(id)?;
                updates.push(RowUpdate { id, table, version, is_active, fields });
            }
        }
    }
    check_written_once(&draft.ids()[first_id..], &updates)?;
    // The new rows are checked only now, because the parent of a row may come after the row.
    for at in first_change..draft.changes().len() {
        schema_check::check(draft, at).await?;
    }
    schema_check::check_stand(draft, first_change)?;
    // 3. The rows that change.
    for update in updates {
        // Updates read rows. Their futures are boxed, so that a command that only creates rows has
        // a small future.
        Box::pin(changed_row::update(draft, update)).await?;
    }
    Ok(())
}

/// Refuses a record that two rows of one call write: a new row and an update, or two updates.
///
/// A simpler version merges the rows. A sale has the same article on two lines; its handler reads
/// that one article is left, and writes twice that none is left. So one article is sold twice. A
/// handler that writes after each line reads its own writes, so several calls may write one record.
fn check_written_once(
    created: &[(RecordId, RecordId)],
    updates: &[RowUpdate],
) -> Result<(), Rejection> {
    if updates.is_empty() {
        return Ok(());
    }
    let mut written: HashSet<_> = created.iter().map(|(_, id)| *id).collect();
    for RowUpdate { id, .. } in updates {
        if !written.insert(*id) {
            let what = format!(
                "record {} is in two rows that are written together, and it is not clear which \
                 counts: send all its fields in one row, and add up its numbers",
                id.0
            );
            return Err(Rejection::invalid(what));
        }
    }
    Ok(())
}
