//! A new row of a command, and its real id.

use eventlog::{Fields, Parent, QName, Record, RecordChange, RecordId, TableKind, Value};
use isequencer::standard;

use crate::{HandlerError, Rejection, command_context::EventDraft};

/// The real id of a new row.
pub(super) fn new_id(
    draft: &mut EventDraft<'_>,
    raw: RecordId,
    table: &QName,
) -> Result<RecordId, HandlerError> {
    if !(1..=u64::from(u16::MAX)).contains(&raw.0) {
        let what = format!("the raw id {} of a new row is not from 1 to 65535", raw.0);
        return Err(Rejection::invalid(what).into());
    }
    if draft.called(raw).is_some() {
        return Err(Rejection::invalid(format!("two new rows have the raw id {}", raw.0)).into());
    }
    let table = draft.table(table)?;
    let (kind, singleton) = (table.kind(), table.singleton_id());
    let seq = match kind {
        TableKind::Singleton => {
            return singleton.ok_or_else(|| Rejection::invalid("a singleton without an id").into());
        }
        TableKind::CDoc | TableKind::CRecord => standard::CRECORD_ID,
        TableKind::WDoc | TableKind::WRecord | TableKind::ODoc | TableKind::ORecord => {
            standard::RECORD_ID
        }
    };
    draft.draw(seq).map(RecordId)
}

/// Adds a new row to the changes.
pub(super) async fn create(
    draft: &mut EventDraft<'_>,
    id: RecordId,
    name: QName,
    parent: Option<Parent>,
    mut fields: Fields,
) -> Result<(), HandlerError> {
    let table = draft.table(&name)?;
    let kind = table.kind();
    for value in fields.values_mut() {
        if let Value::Ref(id) = value {
            *id = draft.real(*id)?;
        }
    }
    let parent = match parent {
        Some(parent) => Some(Parent { id: draft.real(parent.id)?, ..parent }),
        None => None,
    };
    if kind == TableKind::Singleton && Box::pin(draft.get(id)).await?.is_some() {
        let what = format!("there is a {name} already: update record {}", id.0);
        return Err(Rejection::conflict(what).into());
    }
    if let Some(why) = fields.iter().find_map(|(name, _)| table.why_not_sent(name.as_str())) {
        return Err(Rejection::invalid(why).into());
    }
    table.fill_defaults(&mut fields);
    draft.declarations.stamp_dates().fill(table, &mut fields, draft.head.time, true)?;
    draft.fill_sequences(table, &mut fields)?;
    if !table.numbers().is_empty() {
        Box::pin(draft.fill_numbers(table, &mut fields)).await?;
    }
    let record = Record { table: name, kind, id, parent, is_active: true, fields };
    draft.add_change(RecordChange { replaces: None, record });
    Ok(())
}
