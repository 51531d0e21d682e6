//! The check of a record against a schema.

use super::{InvalidRecord, Schema};
use crate::{QName, Record};

impl Schema {
    /// Checks that a record fits these tables. `parent` is the table of the record's parent, if the
    /// record has a parent.
    ///
    /// # Errors
    /// Fails with the first problem of the record.
    pub fn check(&self, record: &Record, parent: Option<&QName>) -> Result<(), InvalidRecord> {
        let name = &record.table;
        let table = self.table(name).ok_or_else(|| InvalidRecord::UnknownTable(name.clone()))?;
        if table.kind != record.kind {
            return Err(InvalidRecord::Kind(name.clone(), table.kind, record.kind));
        }
        if let Some(id) = table.id.filter(|id| *id != record.id) {
            return Err(InvalidRecord::SingletonId(name.clone(), id.0, record.id.0));
        }
        self.check_place(record, parent)?;
        for (field, value) in record.fields.iter() {
            let (name, field) = (name.clone(), field.clone());
            let found = value.field_type();
            match table.field_type(field.as_str()) {
                None => return Err(InvalidRecord::UnknownField(name, field)),
                Some(holds) if holds != found => {
                    return Err(InvalidRecord::FieldType(name, field, holds, found));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    fn check_place(&self, record: &Record, parent: Option<&QName>) -> Result<(), InvalidRecord> {
        let name = record.table.clone();
        let (standing, parent) = match (&record.parent, parent) {
            (None, None) if record.kind.is_document() => return Ok(()),
            (Some(_), _) if record.kind.is_document() => {
                return Err(InvalidRecord::DocumentWithParent(name));
            }
            (Some(standing), Some(parent)) => (standing, parent),
            _ => return Err(InvalidRecord::NoParent(name)),
        };
        let table = self.table(parent);
        let table = table.ok_or_else(|| InvalidRecord::UnknownTable(parent.clone()))?;
        if table.containers.get(&standing.container) == Some(&name) {
            Ok(())
        } else {
            Err(InvalidRecord::UnknownContainer(parent.clone(), standing.container.clone(), name))
        }
    }
}
