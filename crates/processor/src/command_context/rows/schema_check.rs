//! The checks of a row against the schema, and of the parents of new rows.

use eventlog::{QName, RecordId, TableKind};

use crate::{HandlerError, Rejection, command_context::EventDraft};

/// Checks that the schema of the application allows a row and its parent.
pub(super) async fn check(draft: &EventDraft<'_>, at: usize) -> Result<(), HandlerError> {
    let stored;
    let parent = match draft.changes()[at].record.parent.as_ref().map(|parent| parent.id) {
        None => None,
        Some(id) => Some(match draft.place(id) {
            Some(above) => &draft.changes()[above].record.table,
            None => {
                stored = Box::pin(stored_table(draft, id)).await?;
                &stored
            }
        }),
    };
    let checked = draft.declarations.schema().check(&draft.changes()[at].record, parent);
    Ok(checked.map_err(|bad| Rejection::invalid(bad.to_string()))?)
}

/// Checks each new row from `first` on. Its chain of parents must end in an existing row or in
/// a document of the command. A record of an operation must be in a document of the command.
/// Each row is visited once.
pub(super) fn check_stand(draft: &EventDraft<'_>, first: usize) -> Result<(), Rejection> {
    #[derive(Clone, Copy)]
    enum PathState {
        No,
        /// The row is on the chain of parents that is being followed.
        Now,
        /// The chain of parents ends in a document of the command.
        Inside,
        /// The chain of parents ends in a row that existed before the command.
        Outside,
    }
    let mut seen = vec![PathState::No; draft.changes().len() - first];
    let mut way = Vec::new();
    for at in first..draft.changes().len() {
        let mut next = at;
        let top = loop {
            // An earlier call of `write` has checked this row.
            let Some(here) = next.checked_sub(first) else { break PathState::Inside };
            match seen[here] {
                PathState::No => {}
                PathState::Now => {
                    let what = "the parents of new rows form a cycle";
                    return Err(Rejection::invalid(what));
                }
                top => break top,
            }
            seen[here] = PathState::Now;
            way.push(here);
            let Some(parent) = &draft.changes()[next].record.parent else {
                break PathState::Inside;
            };
            match draft.place(parent.id) {
                Some(above) => next = above,
                None => break PathState::Outside,
            }
        };
        for here in way.drain(..) {
            let kind = draft.changes()[first + here].record.kind;
            if matches!((kind, top), (TableKind::ORecord, PathState::Outside)) {
                let what = "a record of an operation must be created with its document, by the same command";
                return Err(Rejection::invalid(what));
            }
            seen[here] = top;
        }
    }
    Ok(())
}

async fn stored_table(draft: &EventDraft<'_>, id: RecordId) -> Result<QName, HandlerError> {
    match draft.state.read(draft.head.ws, id).await? {
        Some(read) => Ok(read.stored.record.table),
        None => Err(Rejection::not_found(format!("there is no record {}", id.0)).into()),
    }
}
