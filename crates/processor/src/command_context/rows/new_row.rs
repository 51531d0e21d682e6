//! A new row of a command, and its real id.

use eventlog::{Fields, Parent, QName, Record, RecordChange, RecordId, TableKind, Value};
use isequencer::standard;

use crate::{CommandContext, HandlerError, Rejection};

impl CommandContext<'_> {
    pub(super) fn new_id(
        &mut self,
        raw: RecordId,
        table: &QName,
    ) -> Result<RecordId, HandlerError> {
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

    pub(super) async fn create(
        &mut self,
        id: RecordId,
        name: QName,
        parent: Option<Parent>,
        mut fields: Fields,
    ) -> Result<(), HandlerError> {
        let table = self.table(&name)?;
        let kind = table.kind();
        for value in fields.values_mut() {
            if let Value::Ref(id) = value {
                *id = self.real(*id)?;
            }
        }
        let parent = match parent {
            Some(parent) => Some(Parent { id: self.real(parent.id)?, ..parent }),
            None => None,
        };
        if kind == TableKind::Singleton && Box::pin(self.get(id)).await?.is_some() {
            let what = format!("there is a {name} already: update record {}", id.0);
            return Err(Rejection::conflict(what).into());
        }
        if let Some(why) = fields.iter().find_map(|(name, _)| table.why_drawn(name.as_str())) {
            return Err(Rejection::invalid(why).into());
        }
        self.fill_sequences(table, &mut fields)?;
        if !table.numbers().is_empty() {
            Box::pin(self.fill_numbers(table, &mut fields)).await?;
        }
        let record = Record { table: name, kind, id, parent, is_active: true, fields };
        self.changes.push(RecordChange { replaces: None, record });
        Ok(())
    }
}
