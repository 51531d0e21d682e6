//! A row that a command changes.

use std::collections::BTreeMap;

use eventlog::{Name, QName, RecordChange, RecordId, StoredRecord, TableKind, Value, Version};

use crate::{CommandContext, HandlerError, Rejection, RejectionKind, state::ReadRecord};

/// The largest size in bytes of all rows together that a command replaces. These rows are in
/// memory, several times, until the event of the command is packed.
const MOST_BYTES: usize = 32 << 20;

impl CommandContext<'_> {
    /// Changes the record with this real id.
    pub(super) async fn update(
        &mut self,
        id: RecordId,
        (table, version): (Option<QName>, Option<Version>),
        is_active: Option<bool>,
        fields: BTreeMap<Name, Option<Value>>,
    ) -> Result<(), HandlerError> {
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
        let table = self.table(&record.table)?;
        for (name, value) in fields {
            if let Some(why) = table.why_drawn(name.as_str()) {
                return Err(Rejection::invalid(why).into());
            }
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
        if !self.try_take(id, expected).await? {
            return Err(Rejection::not_found(format!("there is no record {}", id.0)).into());
        }
        Ok(())
    }

    /// Does the same as [`take`](CommandContext::take). Returns whether the record exists.
    pub(in crate::command_context) async fn try_take(
        &mut self,
        id: RecordId,
        expected: Option<Version>,
    ) -> Result<bool, HandlerError> {
        let Some(ReadRecord { stored: StoredRecord { version, record, .. }, row }) =
            self.state.read(self.ws, id).await?
        else {
            return Ok(false);
        };
        if expected.is_some_and(|expected| expected != version) {
            let what = format!(
                "record {} was written by event {}, and not by the one that the command expects",
                id.0, version.plog.0
            );
            return Err(Rejection::new(RejectionKind::Conflict, what).into());
        }
        self.bytes += row.as_ref().map_or(0, |row| row.value.len());
        if self.bytes > MOST_BYTES {
            let what = format!(
                "the rows that it changes have more than {} MiB together: change them by several commands",
                MOST_BYTES >> 20
            );
            return Err(Rejection::new(RejectionKind::TooLarge, what).into());
        }
        // A record that an earlier command of the group wrote is not stored yet, so the record has
        // no row.
        self.before.extend(row.map(|row| (id, row)));
        self.changes.push(RecordChange { replaces: Some(version), record });
        Ok(true)
    }
}
