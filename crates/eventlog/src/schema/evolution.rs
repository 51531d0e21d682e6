//! The rules for changing a schema: the records of the earlier schema stay readable.
//!
//! A field that a schema leaves out is hidden: its values stay in the records, and later changes of
//! a record carry them. So the deployment has every field that was ever deployed, and nodes with
//! different schemas may take turns.

use super::{IncompatibleSchema, Schema, Table};
use crate::{FieldType, Fields, Name, Value};

impl Schema {
    /// Checks that records of an earlier schema can be read with this one.
    ///
    /// # Errors
    /// Fails with all differences that stored records do not allow.
    pub fn can_follow(&self, earlier: &Schema) -> Result<(), IncompatibleSchema> {
        let differences = earlier.tables().flat_map(|was| match self.table(&was.name) {
            Some(is) => is.differences(was),
            None => vec![IncompatibleSchema::TableGone(was.name.clone())],
        });
        let all = differences.chain(self.lost_sequences(earlier)).collect();
        base::none_of(all, IncompatibleSchema::Several)
    }

    /// Returns what a deployment of this schema changes, in words: new tables and fields, wider
    /// numbers, and fields that are left out. Rules are not deployed.
    pub fn changes_from(&self, deployed: &Schema) -> Vec<String> {
        let mut changes = Vec::new();
        for is in self.tables() {
            let Some(was) = deployed.table(&is.name) else {
                changes.push(format!("{} is new", is.name));
                continue;
            };
            for (field, holds) in &is.fields {
                match was.fields.get(field) {
                    None => changes.push(format!("`{field}` of {} is new", is.name)),
                    Some(held) if held != holds => {
                        changes.push(format!("`{field}` of {} becomes {holds}, for ever", is.name));
                    }
                    Some(_) => {}
                }
            }
            for field in was.fields.keys().filter(|field| !is.fields.contains_key(*field)) {
                changes.push(format!(
                    "`{field}` of {} is left out, and records keep its values",
                    is.name
                ));
            }
        }
        changes
    }

    /// Returns this schema with the fields of the earlier one that it leaves out.
    pub(crate) fn with_hidden_fields(mut self, earlier: &Schema) -> Schema {
        for was in earlier.tables() {
            if let Some(is) = self.tables.get_mut(&was.name) {
                for (field, holds) in &was.fields {
                    is.fields.entry(field.clone()).or_insert(*holds);
                }
            }
        }
        self
    }

    /// The sequences that have not kept their ids. As no sequence is lost, no id is used for
    /// another sequence.
    fn lost_sequences(&self, earlier: &Schema) -> Vec<IncompatibleSchema> {
        let mut lost = Vec::new();
        for (kind, sequences) in &earlier.sequences {
            for (name, id) in sequences {
                if self.sequences.get(kind).and_then(|now| now.get(name)) != Some(id) {
                    lost.push(IncompatibleSchema::Sequence(kind.clone(), name.clone(), *id));
                }
            }
        }
        lost
    }
}

impl Table {
    /// Gives each value of a stored record the type that this table has for it now: an int64 may
    /// have been an int32.
    pub fn widen(&self, fields: &mut Fields) {
        for (name, value) in fields.iter_mut() {
            if let Value::Int32(number) = *value
                && self.fields.get(name) == Some(&FieldType::Int64)
            {
                *value = Value::Int64(number.into());
            }
        }
    }

    /// The differences from the earlier table that stored records do not allow.
    fn differences(&self, was: &Table) -> Vec<IncompatibleSchema> {
        let name = || was.name.clone();
        let mut all = Vec::new();
        if self.kind != was.kind {
            all.push(IncompatibleSchema::Kind(name(), was.kind, self.kind));
        } else if self.id != was.id {
            all.push(IncompatibleSchema::Id(name(), was.id.map_or(0, |id| id.0)));
        }
        for (field, held) in &was.fields {
            let field = || field.clone();
            match self.fields.get(&field()) {
                Some(holds) if holds == held => {}
                Some(FieldType::Int64) if *held == FieldType::Int32 => {}
                Some(holds) => {
                    all.push(IncompatibleSchema::Retyped(name(), field(), *held, *holds));
                }
                // The records still have its values, so nothing else can have its name.
                None if self.has_name(&field()) => {
                    all.push(IncompatibleSchema::NameOfField(name(), field(), *held));
                }
                None => {}
            }
        }
        for (field, series) in &was.numbers {
            if self.numbers.get(field) != Some(series) {
                all.push(IncompatibleSchema::Number(name(), field.clone(), series.clone()));
            }
        }
        for (field, sequence) in &was.sequences {
            if self.sequences.get(field) != Some(sequence) {
                let (field, sequence) = (field.clone(), sequence.clone());
                all.push(IncompatibleSchema::SequenceField(name(), field, sequence));
            }
        }
        for (container, records) in &was.containers {
            if self.containers.get(container) != Some(records) {
                let (container, records) = (container.clone(), records.clone());
                all.push(IncompatibleSchema::Container(name(), container, records));
            }
        }
        all
    }

    /// Whether the table has a number field, a sequence field or a container of this name.
    fn has_name(&self, name: &Name) -> bool {
        self.numbers.contains_key(name)
            || self.sequences.contains_key(name)
            || self.containers.contains_key(name)
    }
}
