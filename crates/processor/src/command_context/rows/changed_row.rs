//! A row that a command changes.

use std::collections::BTreeMap;

use eventlog::{Name, QName, RecordId, TableKind, Value, Version};

use super::schema_check;
use crate::{HandlerError, Rejection, command_context::EventDraft};

/// A [`RowChange::Update`](crate::RowChange::Update) with the real id of its row.
pub(super) struct RowUpdate {
    pub(super) id: RecordId,
    pub(super) table: Option<QName>,
    pub(super) version: Option<Version>,
    pub(super) is_active: Option<bool>,
    pub(super) fields: BTreeMap<Name, Option<Value>>,
}

/// Changes a record.
pub(super) async fn update(
    draft: &mut EventDraft<'_>,
    RowUpdate { id, table, version, is_active, fields }: RowUpdate,
) -> Result<(), HandlerError> {
    let at = match draft.place(id) {
        Some(_) if version.is_some() => {
            let what = format!("record {} is written twice, once with a version", id.0);
            return Err(Rejection::invalid(what).into());
        }
        Some(at) => at,
        None => {
            let taken = draft.take(id, version).await?;
            taken.ok_or_else(|| Rejection::not_found(format!("there is no record {}", id.0)))?
        }
    };
    if let Some(table) = table.filter(|table| *table != draft.changes()[at].record.table) {
        return Err(Rejection::not_found(format!("there is no {table} {}", id.0)).into());
    }
    let mut record = draft.changes()[at].record.clone();
    if matches!(record.kind, TableKind::ODoc | TableKind::ORecord) {
        let what = format!("record {} belongs to an operation, and cannot change", id.0);
        return Err(Rejection::invalid(what).into());
    }
    record.is_active = is_active.unwrap_or(record.is_active);
    let table = draft.table(&record.table)?;
    for (name, value) in fields {
        if let Some(why) = table.why_drawn(name.as_str()) {
            return Err(Rejection::invalid(why).into());
        }
        match value {
            Some(Value::Ref(id)) => {
                record.fields.insert(name, Value::Ref(draft.real(id)?));
            }
            Some(value) => {
                record.fields.insert(name, value);
            }
            None => {
                record.fields.remove(name.as_str());
            }
        }
    }
    *draft.record_mut(at) = record;
    schema_check::check(draft, at).await
}
