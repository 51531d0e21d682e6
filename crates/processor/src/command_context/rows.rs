//! Writing the rows of a command: new ids, and the checks of new and changed rows.

use std::collections::BTreeMap;

use bytes::Bytes;
use eventlog::{
    Fields, Name, QName, Record, RecordChange, RecordId, StoredRecord, Table, TableKind, Value,
    Version,
};
use isequencer::standard;

use super::CommandContext;
use crate::{HandlerError, Rejection, RejectionKind, RowChange, state::ReadRecord};

/// The largest number of rows that a command can write.
const MOST_ROWS: usize = 4_096;

/// The largest size in bytes of all rows together that a command replaces. These rows are in
/// memory, several times, until the event of the command is packed.
const MOST_BYTES: usize = 32 << 20;

impl CommandContext<'_> {
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
            let what = format!("the raw id {} of a new row is not from 1 to 65535", raw.0);
            return Err(Rejection::invalid(what).into());
        }
        if self.called(raw).is_some() {
            return Err(
                Rejection::invalid(format!("two new rows have the raw id {}", raw.0)).into()
            );
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
        real.ok_or_else(|| Rejection::invalid(format!("no new row has the raw id {}", id.0)))
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
        self.changes.push(RecordChange { replaces: None, record });
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
                        let what = "the parents of new rows form a cycle";
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
                    let what = "a record of an operation must be created with its document, by the same command";
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
            let what = format!("record {} belongs to an operation, and cannot change", id.0);
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
        self.changes.push(RecordChange { replaces: Some(version), record });
        Ok(())
    }
}
