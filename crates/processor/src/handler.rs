//! The port to the handlers of commands, and the context in which a handler works.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

use async_trait::async_trait;
use bytes::Bytes;
use eventlog::{
    Change, Fields, Name, QName, Record, RecordId, StoredRecord, Table, TableKind, Value, Version,
    WsId,
};
use isequencer::{NoNumber, SeqId, WsKind, standard};

use crate::{
    Application, Rejection, RejectionKind, RowChange,
    application::DESCRIPTOR_ID,
    state::{GroupView, ReadRecord},
};

/// Runs the commands of one name. A handler sees the effects of all earlier commands. No other
/// reader sees the effects of the command before its event is in the log.
///
/// A handler may run although its command is not done in the end, so a handler must act only
/// through its [`CommandContext`]. The handler of the first command of a group has until the deadline of its
/// command. The handler of a later command has less time: it may be dropped at any `await`, and run
/// again from its beginning. A handler that panics has failed.
#[async_trait]
pub trait Handler: fmt::Debug + Send + Sync + 'static {
    /// Runs a command with its params and rows. The returned bytes become part of the answer. If
    /// the handler fails, nothing is written. Rows that the handler does not [write](CommandContext::write)
    /// are not written either.
    async fn run(
        &self,
        params: &Bytes,
        rows: Vec<RowChange>,
        context: &mut CommandContext<'_>,
    ) -> Result<Bytes, HandlerError>;
}

/// The reason why a handler does not do a command.
#[derive(Debug, thiserror::Error)]
pub enum HandlerError {
    /// The command cannot be done.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// A row that the command needs cannot be read.
    #[error(transparent)]
    Storage(#[from] eventlog::Error),
}

/// The largest number of rows that a command can write.
const MOST_ROWS: usize = 4_096;

/// The largest size in bytes of all rows together that a command replaces. These rows are in
/// memory, several times, until the event of the command is packed.
const MOST_BYTES: usize = 32 << 20;

/// Gives numbers. The trait hides the lifetimes of the [command](isequencer::Command) that has
/// joined a transaction, so that handlers need not name them.
pub(crate) trait Numbers: Send + Sync {
    fn next(&mut self, seq: SeqId) -> Result<u64, NoNumber>;
}

impl Numbers for isequencer::Command<'_, '_> {
    fn next(&mut self, seq: SeqId) -> Result<u64, NoNumber> {
        isequencer::Command::next(self, seq)
    }
}

/// Finds the position of an element by its id. A short list is searched element by element.
#[derive(Debug, Default)]
pub(crate) struct PositionIndex {
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
    pub(crate) application: &'g Application,
    pub(crate) ws: WsId,
    pub(crate) kind: WsKind,
    pub(crate) state: &'g GroupView<'g>,
    pub(crate) numbers: &'g mut dyn Numbers,
    /// The changes that the command writes.
    pub(crate) changes: Vec<Change>,
    /// The stored bytes of the records that the command replaces.
    pub(crate) before: Vec<(RecordId, Bytes)>,
    /// The raw ids of the new rows, each with its real id.
    pub(crate) ids: Vec<(RecordId, RecordId)>,
    /// The positions in `changes`, by the id of the record.
    pub(crate) changes_by_id: PositionIndex,
    /// The positions in `ids`, by raw id.
    pub(crate) ids_by_raw: PositionIndex,
    /// The number of bytes in all rows that the command replaces.
    pub(crate) bytes: usize,
    /// Whether writing rows failed. The command fails then, even if its handler ignores the error.
    pub(crate) has_failed: bool,
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
            let what = format!("sequence {seq} is the system's: nothing else draws from it");
            return Err(Rejection::new(RejectionKind::Internal, what).into());
        }
        self.draw(seq)
    }

    fn draw(&mut self, seq: SeqId) -> Result<u64, HandlerError> {
        Ok(self.numbers.next(seq).map_err(|no| match no {
            NoNumber::UnknownSequence { .. } => Rejection::invalid(no.to_string()),
            NoNumber::Exhausted { .. } => Rejection::conflict(no.to_string()),
        })?)
    }

    /// Writes rows: first the new rows, which get ids in their order, and then the rows that
    /// change. Raw ids in references and parents are replaced by real ids. The call returns the raw
    /// id and the real id of each new row.
    ///
    /// # Errors
    /// The mistake in the rows. The command fails then, even if its handler ignores the error,
    /// because a part of the rows may be written.
    pub async fn write(
        &mut self,
        rows: Vec<RowChange>,
    ) -> Result<&[(RecordId, RecordId)], HandlerError> {
        let is_of_system = |row: &RowChange| match row {
            RowChange::Create { table, .. } => table.package() == "sys",
            RowChange::Update { table: Some(table), .. } => table.package() == "sys",
            RowChange::Update { table: None, id, .. } => *id == DESCRIPTOR_ID,
        };
        if rows.iter().any(is_of_system) {
            self.has_failed = true;
            let what = "the tables of `sys` are written by commands of their own";
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
        let written = self.try_write(rows, first).await;
        self.has_failed |= written.is_err();
        written.map(|()| &self.ids[first..])
    }

    async fn try_write(&mut self, rows: Vec<RowChange>, first: usize) -> Result<(), HandlerError> {
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
                    updates.push((id, (table, version), is_active, fields));
                }
            }
        }
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

    fn new_id(&mut self, raw: RecordId, table: &QName) -> Result<RecordId, HandlerError> {
        if !(1..=u64::from(u16::MAX)).contains(&raw.0) {
            let what = format!("a new row is called {}, which is not from 1 to 65535", raw.0);
            return Err(Rejection::invalid(what).into());
        }
        if self.called(raw).is_some() {
            return Err(Rejection::invalid(format!("two new rows are called {}", raw.0)).into());
        }
        let table = self.table(table)?;
        let (kind, singleton) = (table.kind(), table.singleton_id());
        let seq = match kind {
            TableKind::Singleton => {
                return singleton
                    .ok_or_else(|| Rejection::invalid("a singleton without an id").into());
            }
            TableKind::CDoc | TableKind::CRecord => standard::CRECORD_ID,
            TableKind::WDoc | TableKind::WRecord | TableKind::ODoc | TableKind::ORecord => {
                standard::RECORD_ID
            }
        };
        self.draw(seq).map(RecordId)
    }

    fn table(&self, name: &QName) -> Result<&Table, Rejection> {
        let table = self.application.schema().table(name);
        table.ok_or_else(|| Rejection::invalid(format!("there is no table {name}")))
    }

    /// The real id of a row: that of the new row if `id` is a raw id, else `id` itself.
    fn real(&mut self, id: RecordId) -> Result<RecordId, Rejection> {
        if id.0 > u64::from(u16::MAX) {
            return Ok(id);
        }
        let real = self.called(id);
        real.ok_or_else(|| Rejection::invalid(format!("no new row is called {}", id.0)))
    }

    /// The real id of the new row with this raw id.
    fn called(&mut self, raw: RecordId) -> Option<RecordId> {
        let at = self.ids_by_raw.find(&self.ids, |(raw, _)| *raw, raw)?;
        Some(self.ids[at].1)
    }

    /// The position of a record among the changes of the command.
    fn place(&mut self, id: RecordId) -> Option<usize> {
        self.changes_by_id.find(&self.changes, |change| change.record.id, id)
    }

    async fn create(
        &mut self,
        id: RecordId,
        table: QName,
        parent: Option<eventlog::Parent>,
        mut fields: Fields,
    ) -> Result<(), HandlerError> {
        let kind = self.table(&table)?.kind();
        for value in fields.values_mut() {
            if let Value::Ref(id) = value {
                *id = self.real(*id)?;
            }
        }
        let parent = match parent {
            Some(parent) => Some(eventlog::Parent { id: self.real(parent.id)?, ..parent }),
            None => None,
        };
        if kind == TableKind::Singleton && Box::pin(self.get(id)).await?.is_some() {
            let what = format!("there is a {table} already: update record {}", id.0);
            return Err(Rejection::conflict(what).into());
        }
        let record = Record { table, kind, id, parent, is_active: true, fields };
        self.changes.push(Change { replaces: None, record });
        Ok(())
    }

    /// Checks that the schema of the application allows a row and its parent.
    async fn check(&mut self, at: usize) -> Result<(), HandlerError> {
        let stored;
        let parent = match self.changes[at].record.parent.as_ref().map(|parent| parent.id) {
            None => None,
            Some(id) => Some(match self.place(id) {
                Some(above) => &self.changes[above].record.table,
                None => {
                    stored = Box::pin(self.stored_table(id)).await?;
                    &stored
                }
            }),
        };
        let checked = self.application.schema().check(&self.changes[at].record, parent);
        Ok(checked.map_err(|bad| Rejection::invalid(bad.to_string()))?)
    }

    /// Checks each new row from `first` on. Its chain of parents must end in an existing row or in
    /// a document of the command. A record of an operation must be in a document of the command.
    /// Each row is visited once.
    fn check_stand(&mut self, first: usize) -> Result<(), Rejection> {
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
        let mut seen = vec![PathState::No; self.changes.len() - first];
        let mut way = Vec::new();
        for at in first..self.changes.len() {
            let mut next = at;
            let top = loop {
                // An earlier call of `write` has checked this row.
                let Some(here) = next.checked_sub(first) else { break PathState::Inside };
                match seen[here] {
                    PathState::No => {}
                    PathState::Now => {
                        let what = "new rows stand in one another, and in no document";
                        return Err(Rejection::invalid(what));
                    }
                    top => break top,
                }
                seen[here] = PathState::Now;
                way.push(here);
                let Some(parent) = &self.changes[next].record.parent else {
                    break PathState::Inside;
                };
                match self.place(parent.id) {
                    Some(above) => next = above,
                    None => break PathState::Outside,
                }
            };
            for here in way.drain(..) {
                let kind = self.changes[first + here].record.kind;
                if matches!((kind, top), (TableKind::ORecord, PathState::Outside)) {
                    let what = "records of an operation are made with its document, by one command";
                    return Err(Rejection::invalid(what));
                }
                seen[here] = top;
            }
        }
        Ok(())
    }

    async fn stored_table(&self, id: RecordId) -> Result<QName, HandlerError> {
        match self.state.read(self.ws, id).await? {
            Some(read) => Ok(read.stored.record.table),
            None => Err(Rejection::not_found(format!("there is no record {}", id.0)).into()),
        }
    }

    async fn update(
        &mut self,
        id: RecordId,
        (table, version): (Option<QName>, Option<Version>),
        is_active: Option<bool>,
        fields: BTreeMap<Name, Option<Value>>,
    ) -> Result<(), HandlerError> {
        let id = self.real(id)?;
        let at = match self.place(id) {
            Some(_) if version.is_some() => {
                let what = format!("record {} is written twice, once with a version", id.0);
                return Err(Rejection::invalid(what).into());
            }
            Some(at) => at,
            None => {
                self.take(id, version).await?;
                self.changes.len() - 1
            }
        };
        if let Some(table) = table.filter(|table| *table != self.changes[at].record.table) {
            return Err(Rejection::not_found(format!("there is no {table} {}", id.0)).into());
        }
        let mut record = self.changes[at].record.clone();
        if matches!(record.kind, TableKind::ODoc | TableKind::ORecord) {
            let what = format!("record {} is of an operation, and does not change", id.0);
            return Err(Rejection::invalid(what).into());
        }
        record.is_active = is_active.unwrap_or(record.is_active);
        for (name, value) in fields {
            match value {
                Some(Value::Ref(id)) => {
                    record.fields.insert(name, Value::Ref(self.real(id)?));
                }
                Some(value) => {
                    record.fields.insert(name, value);
                }
                None => {
                    record.fields.remove(name.as_str());
                }
            }
        }
        self.changes[at].record = record;
        self.check(at).await
    }

    /// Reads a record that the command replaces, and adds the record to the changes.
    async fn take(&mut self, id: RecordId, expected: Option<Version>) -> Result<(), HandlerError> {
        let Some(ReadRecord { stored: StoredRecord { version, record, .. }, bytes }) =
            self.state.read(self.ws, id).await?
        else {
            return Err(Rejection::not_found(format!("there is no record {}", id.0)).into());
        };
        if expected.is_some_and(|expected| expected != version) {
            let what = format!(
                "record {} was written by event {}, and not by the one that the command expects",
                id.0, version.plog.0
            );
            return Err(Rejection::new(RejectionKind::Conflict, what).into());
        }
        self.bytes += bytes.as_ref().map_or(0, Bytes::len);
        if self.bytes > MOST_BYTES {
            let what = format!(
                "the rows that it changes have more than {} MiB together: change them by several commands",
                MOST_BYTES >> 20
            );
            return Err(Rejection::new(RejectionKind::TooLarge, what).into());
        }
        // A record that an earlier command of the group wrote is not stored yet, so the record has
        // no bytes.
        self.before.extend(bytes.map(|bytes| (id, bytes)));
        self.changes.push(Change { replaces: Some(version), record });
        Ok(())
    }

    fn changed(&self, id: RecordId) -> Option<&Change> {
        self.changes.iter().find(|change| change.record.id == id)
    }
}
