//! The context in which a handler works: it reads the workspace, draws numbers and writes rows.

mod doc_numbers;
mod rows;
mod sequence_fields;

pub use rows::MOST_ROWS;

use std::{collections::HashMap, fmt};

use clock::WallTime;
use eventlog::{
    Offset, Record, RecordChange, RecordId, StoredRecord, Version, WsId, istorage::FoundRow,
};
use isequencer::{DrawError, SeqId, WsKind, standard};

use crate::{
    Application, HandlerError, Rejection, RejectionKind, RowChange,
    state::{GroupView, ReadRecord},
};

/// Gives numbers. The trait hides the lifetimes of the [command](isequencer::JoinedCommand) that
/// has joined a transaction, so that handlers need not name them.
pub(crate) trait Numbers: Send + Sync {
    fn next(&mut self, seq: SeqId) -> Result<u64, DrawError>;
}

impl Numbers for isequencer::JoinedCommand<'_, '_> {
    fn next(&mut self, seq: SeqId) -> Result<u64, DrawError> {
        isequencer::JoinedCommand::next(self, seq)
    }
}

/// Finds the position of an element by its id. A short list is searched element by element.
#[derive(Debug, Default)]
struct PositionIndex {
    places: HashMap<RecordId, usize>,
    /// The number of elements in the index.
    count: usize,
}

impl PositionIndex {
    fn find<T>(
        &mut self,
        all: &[T],
        id_of: impl Fn(&T) -> RecordId,
        id: RecordId,
    ) -> Option<usize> {
        const FEW: usize = 32;
        if all.len() <= FEW {
            return all.iter().position(|one| id_of(one) == id);
        }
        let new = all.iter().enumerate().skip(self.count);
        self.places.extend(new.map(|(at, one)| (id_of(one), at)));
        self.count = all.len();
        self.places.get(&id).copied()
    }
}

/// The command context: the view that a handler has of the workspace, and its way to write.
pub struct CommandContext<'g> {
    application: &'g Application,
    ws: WsId,
    /// The offset of the event in the log of the workspace, if the command makes one.
    wlog: Offset,
    kind: WsKind,
    /// The time of the event, if the command makes one.
    time: WallTime,
    state: &'g GroupView<'g>,
    numbers: &'g mut dyn Numbers,
    /// The changes that the command writes.
    pub(crate) changes: Vec<RecordChange>,
    /// The stored rows of the records that the command replaces.
    pub(crate) before: Vec<(RecordId, FoundRow)>,
    /// The raw ids of the new rows, each with its real id.
    pub(crate) ids: Vec<(RecordId, RecordId)>,
    /// The positions in `changes`, by the id of the record.
    changes_by_id: PositionIndex,
    /// The positions in `ids`, by raw id.
    ids_by_raw: PositionIndex,
    /// The number of bytes in all rows that the command replaces.
    bytes: usize,
    /// Whether writing rows failed. The command fails then, even if its handler ignores the error.
    pub(crate) has_failed: bool,
}

impl<'g> CommandContext<'g> {
    /// Creates the context of a command that names `rows` rows. `time` is the time of its event.
    pub(crate) fn new(
        application: &'g Application,
        (kind, ws, wlog): (WsKind, WsId, Offset),
        time: WallTime,
        state: &'g GroupView<'g>,
        numbers: &'g mut dyn Numbers,
        rows: usize,
    ) -> CommandContext<'g> {
        CommandContext {
            application,
            ws,
            wlog,
            kind,
            time,
            state,
            numbers,
            changes: Vec::with_capacity(rows),
            before: Vec::new(),
            ids: Vec::with_capacity(rows),
            changes_by_id: PositionIndex::default(),
            ids_by_raw: PositionIndex::default(),
            bytes: 0,
            has_failed: false,
        }
    }
}

impl fmt::Debug for CommandContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandContext")
            .field("ws", &self.ws)
            .field("changes", &self.changes)
            .finish()
    }
}

impl CommandContext<'_> {
    /// The application of the command.
    pub fn application(&self) -> &Application {
        self.application
    }

    /// The workspace of the command.
    pub fn ws(&self) -> WsId {
        self.ws
    }

    /// The kind of the workspace.
    pub fn kind(&self) -> WsKind {
        self.kind
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
        if let Some(change) = self.changed(id) {
            return Ok(Some((change.record.clone(), None)));
        }
        let found = self.state.read(self.ws, id).await?;
        Ok(found.map(|ReadRecord { stored: StoredRecord { version, record, .. }, .. }| {
            (record, Some(version))
        }))
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
        self.draw(seq)
    }

    fn draw(&mut self, seq: SeqId) -> Result<u64, HandlerError> {
        Ok(self.numbers.next(seq).map_err(|no| match no {
            DrawError::UnknownSequence { .. } => Rejection::invalid(no.to_string()),
            DrawError::Exhausted { .. } => Rejection::new(RejectionKind::NoNumber, no.to_string()),
        })?)
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
            RowChange::Update { table: None, id, .. } => self.application.is_record_of_system(*id),
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
        let first = self.ids.len();
        // A handler may drop this future, and a part of the rows may be written then.
        let has_failed = std::mem::replace(&mut self.has_failed, true);
        self.try_write(rows, first).await?;
        self.has_failed = has_failed;
        Ok(&self.ids[first..])
    }

    fn changed(&self, id: RecordId) -> Option<&RecordChange> {
        self.changes.iter().find(|change| change.record.id == id)
    }
}
