//! The context in which a handler works: it reads the workspace, draws numbers and writes rows.

mod draft;
mod numbers;
mod rows;

use std::fmt;

use docnumbers::{DocNumber, SeriesId};
use eventlog::{Record, RecordId, Version, WsId};
use isequencer::{SeqId, WsKind, standard};

pub use self::draft::MOST_ROWS;
pub(crate) use self::draft::{DraftedRows, EventDraft, EventHead, Numbers};
use crate::{HandlerError, Rejection, RejectionKind, RowChange};

/// The command context: the view that a handler has of the workspace, and its way to write.
pub struct CommandContext<'g> {
    pub(crate) draft: EventDraft<'g>,
    /// Whether writing rows failed. The command fails then, even if its handler ignores the error.
    pub(crate) has_failed: bool,
}

impl fmt::Debug for CommandContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandContext")
            .field("ws", &self.ws())
            .field("changes", &self.draft.changes())
            .finish()
    }
}

impl CommandContext<'_> {
    /// The workspace of the command.
    pub fn ws(&self) -> WsId {
        self.draft.head.ws
    }

    /// The kind of the workspace.
    pub fn kind(&self) -> WsKind {
        self.draft.head.kind
    }

    /// Reads a record as it is after all earlier commands and after the changes of this command so
    /// far. The version is `None` if this command wrote the record.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn get(
        &self,
        id: RecordId,
    ) -> Result<Option<(Record, Option<Version>)>, HandlerError> {
        self.draft.get(id).await
    }

    /// The next number of a sequence that the application declared for workspaces of this kind. If
    /// the command fails, the number is given back.
    ///
    /// # Errors
    /// If there is no such sequence, or the sequence is used up.
    pub fn next(&mut self, seq: SeqId) -> Result<u64, HandlerError> {
        if seq < standard::FIRST_OF_APPLICATIONS {
            let what =
                format!("sequence {seq} belongs to the system: a handler cannot draw from it");
            return Err(Rejection::new(RejectionKind::Internal, what).into());
        }
        self.draft.draw(seq)
    }

    /// The next number of a gapless series. The number belongs to the period of the time of the
    /// event. The event of this command counts the number: if the command fails, the next command
    /// draws the same number.
    ///
    /// # Errors
    /// If the application has no such series, if the series is fast, or if the counter is full. A
    /// handler may go on after an error: no number is drawn.
    pub async fn next_number(&mut self, series: &SeriesId) -> Result<DocNumber, HandlerError> {
        self.draft.next_number(series).await
    }

    /// Writes rows: first the new rows, which get ids in their order, and then the rows that
    /// change. Raw ids in references and parents are replaced by real ids. The call returns the raw
    /// id and the real id of each new row.
    ///
    /// # Errors
    /// The mistake in the rows. The command fails then, even if its handler ignores the error,
    /// because a part of the rows may be written.
    ///
    /// # Cancel safety
    /// If the handler drops the future, the command fails.
    pub async fn write(
        &mut self,
        rows: Vec<RowChange>,
    ) -> Result<&[(RecordId, RecordId)], HandlerError> {
        let is_of_system = |row: &RowChange| match row {
            RowChange::Create { table, .. } => table.package() == "sys",
            RowChange::Update { table: Some(table), .. } => table.package() == "sys",
            RowChange::Update { table: None, id, .. } => {
                self.draft.declarations.is_record_of_system(*id)
            }
        };
        if rows.iter().any(is_of_system) {
            self.has_failed = true;
            let what = "only commands of the system write the tables of `sys`";
            return Err(Rejection::invalid(what).into());
        }
        self.write_any(rows).await
    }

    /// Does the same as [`write`](CommandContext::write), also for tables of the system.
    pub(crate) async fn write_any(
        &mut self,
        rows: Vec<RowChange>,
    ) -> Result<&[(RecordId, RecordId)], HandlerError> {
        let first = self.draft.ids().len();
        // A handler may drop this future, and a part of the rows may be written then.
        let has_failed = std::mem::replace(&mut self.has_failed, true);
        rows::write(&mut self.draft, rows).await?;
        self.has_failed = has_failed;
        Ok(&self.draft.ids()[first..])
    }
}
