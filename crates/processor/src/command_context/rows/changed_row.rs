//! A row that a command changes.

use std::collections::BTreeMap;

use eventlog::{FieldType, Fields, Name, QName, RecordId, Table, TableKind, Value, Version};

use crate::{FieldChange, HandlerError, Rejection, RejectionKind, command_context::EventDraft};

/// A [`RowChange::Update`](crate::RowChange::Update) with the real id of its row.
pub(super) struct RowUpdate {
    pub(super) id: RecordId,
    pub(super) table: Option<QName>,
    pub(super) version: Option<Version>,
    pub(super) is_active: Option<bool>,
    pub(super) fields: BTreeMap<Name, FieldChange>,
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
    for (name, change) in fields {
        if let Some(why) = table.why_not_sent(name.as_str()) {
            return Err(Rejection::invalid(why).into());
        }
        match change {
            FieldChange::Set(mut value) => {
                if let Value::Ref(id) = &mut value {
                    *id = draft.real(*id)?;
                }
                table
                    .check(&name, &value)
                    .map_err(|wrong| Rejection::invalid(wrong.to_string()))?;
                record.fields.insert(name, value);
            }
            FieldChange::Clear => {
                // Another node may know the field, and its value must stay.
                table.check_known(&name).map_err(|wrong| Rejection::invalid(wrong.to_string()))?;
                record.fields.remove(name.as_str());
            }
            FieldChange::Add(number) => {
                let sum = sum(table, &name, &record.fields, number).map_err(|mut refused| {
                    refused.message = format!("record {}: {}", id.0, refused.message);
                    refused
                })?;
                record.fields.insert(name, sum);
            }
        }
    }
    let is_new = draft.changes()[at].replaces.is_none();
    draft.declarations.stamp_dates().fill(table, &mut record.fields, draft.head.time, is_new)?;
    *draft.record_mut(at) = record;
    Ok(())
}

/// The sum of the number in a field and another one.
fn sum(table: &Table, name: &Name, fields: &Fields, number: i64) -> Result<Value, Rejection> {
    let holds = table.field_type(name.as_str());
    let sum = match (holds, fields.get(name.as_str())) {
        (Some(FieldType::Int32), None) => i32::try_from(number).ok().map(Value::Int32),
        (Some(FieldType::Int32), Some(Value::Int32(was))) => {
            let sum = i64::from(*was).checked_add(number);
            sum.and_then(|sum| i32::try_from(sum).ok()).map(Value::Int32)
        }
        (Some(FieldType::Int64), None) => Some(Value::Int64(number)),
        (Some(FieldType::Int64), Some(Value::Int64(was))) => {
            was.checked_add(number).map(Value::Int64)
        }
        // A simpler version adds to 0 here, and the stored number is lost.
        (Some(holds @ (FieldType::Int32 | FieldType::Int64)), Some(other)) => {
            let (table, found) = (table.name(), other.field_type());
            let what = format!(
                "the field `{name}` of {table} is of type {holds}, and the record has a value of \
                 type {found}: declare the type that was deployed"
            );
            return Err(Rejection::new(RejectionKind::Internal, what));
        }
        _ => {
            let table = table.name();
            let what = format!("`{name}` of {table} is no int32 or int64, so nothing can be added");
            return Err(Rejection::invalid(what));
        }
    };
    sum.ok_or_else(|| {
        let (table, holds) = (table.name(), holds.unwrap_or(FieldType::Int64));
        let what = format!("the field `{name}` of {table} would have a sum outside of {holds}");
        Rejection::new(RejectionKind::Rule, what)
    })
}
