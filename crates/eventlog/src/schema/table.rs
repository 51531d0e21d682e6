//! A table of a schema.

use std::{collections::BTreeMap, ops::RangeInclusive};

use super::{FieldRules, InvalidRecord, Stamp};
use crate::{FieldType, Fields, Name, QName, RecordId, TableKind, Value};

/// The ids that singletons may have.
pub const SINGLETON_IDS: RangeInclusive<u64> = 65_536..=66_047;

/// A table.
// The names of the fields are stored: the text of a schema is in the deployment.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Table {
    #[serde(skip)]
    pub(super) name: QName,
    pub(super) kind: TableKind,
    /// The id of the record, if the table is a singleton.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<RecordId>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) fields: BTreeMap<Name, FieldType>,
    /// The series of each number field.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) numbers: BTreeMap<Name, String>,
    /// The sequence of each sequence field.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) sequences: BTreeMap<Name, Name>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) containers: BTreeMap<Name, QName>,
    // Stored records do not depend on rules, so the deployment has none.
    #[serde(skip)]
    pub(super) rules: BTreeMap<Name, FieldRules>,
    #[serde(skip)]
    pub(super) stamps: BTreeMap<Name, Stamp>,
    #[serde(skip)]
    pub(super) is_append_only: bool,
}

impl Table {
    /// Makes a table without fields.
    pub fn new(name: QName, kind: TableKind) -> Table {
        Table {
            name,
            kind,
            id: None,
            fields: BTreeMap::new(),
            numbers: BTreeMap::new(),
            sequences: BTreeMap::new(),
            containers: BTreeMap::new(),
            rules: BTreeMap::new(),
            stamps: BTreeMap::new(),
            is_append_only: false,
        }
    }

    /// Makes the table of a singleton. Its record always has this id.
    pub fn singleton(name: QName, id: RecordId) -> Table {
        Table { id: Some(id), ..Table::new(name, TableKind::Singleton) }
    }

    /// Adds a field. A field with the same name is replaced.
    #[must_use]
    pub fn with_field(mut self, name: Name, holds: FieldType) -> Table {
        self.fields.insert(name, holds);
        self
    }

    /// Sets the rules of a field.
    #[must_use]
    pub fn with_rules(mut self, field: Name, rules: FieldRules) -> Table {
        self.rules.insert(field, rules);
        self
    }

    /// Lets the node fill a field with the time of the event.
    #[must_use]
    pub fn with_stamp(mut self, field: Name, stamp: Stamp) -> Table {
        self.stamps.insert(field, stamp);
        self
    }

    /// Makes the table append-only: a record can be made, and never changed.
    #[must_use]
    pub fn append_only(self) -> Table {
        Table { is_append_only: true, ..self }
    }

    /// Adds a number field: a text that a new record gets from a series of document numbers. Its
    /// value never changes. A number field with the same name is replaced. The case of `series`
    /// does not matter.
    #[must_use]
    pub fn with_number(mut self, name: Name, series: &str) -> Table {
        self.numbers.insert(name, series.to_ascii_lowercase());
        self
    }

    /// Adds a sequence field: a number of type `int64` that a new record gets from a sequence of
    /// its workspace. Its value never changes. A sequence field with the same name is replaced.
    #[must_use]
    pub fn with_sequence(mut self, name: Name, sequence: Name) -> Table {
        self.sequences.insert(name, sequence);
        self
    }

    /// Adds a container for records of another table. A container with the same name is replaced.
    #[must_use]
    pub fn with_container(mut self, name: Name, table: QName) -> Table {
        self.containers.insert(name, table);
        self
    }

    /// Returns the name of the table.
    pub fn name(&self) -> &QName {
        &self.name
    }

    /// Returns the kind of the table.
    pub fn kind(&self) -> TableKind {
        self.kind
    }

    /// Returns the id of the only record, if the table is a singleton.
    pub fn singleton_id(&self) -> Option<RecordId> {
        self.id
    }

    /// Returns the fields.
    pub fn fields(&self) -> &BTreeMap<Name, FieldType> {
        &self.fields
    }

    /// Returns the rules of each field that has some.
    pub fn rules(&self) -> &BTreeMap<Name, FieldRules> {
        &self.rules
    }

    /// Returns whether a record never changes.
    pub fn is_append_only(&self) -> bool {
        self.is_append_only
    }

    /// Returns the fields that the node fills with the time of the event.
    pub fn stamps(&self) -> &BTreeMap<Name, Stamp> {
        &self.stamps
    }

    /// Returns whether a command can break a rule of the table. Each reference has one: it points
    /// to an active record of the workspace.
    pub fn can_refuse(&self) -> bool {
        let has_references = || self.fields.values().any(|holds| *holds == FieldType::Ref);
        self.is_append_only || !self.rules.is_empty() || has_references()
    }

    /// Gives the empty fields of a new record their defaults.
    pub fn fill_defaults(&self, fields: &mut Fields) {
        for (name, rules) in &self.rules {
            if let Some(default) = &rules.default
                && fields.get(name.as_str()).is_none()
            {
                fields.insert(name.clone(), default.clone());
            }
        }
    }

    /// Returns the number fields, each with the id of its series in lower case.
    pub fn numbers(&self) -> &BTreeMap<Name, String> {
        &self.numbers
    }

    /// Returns the sequence fields, each with the name of its sequence.
    pub fn sequences(&self) -> &BTreeMap<Name, Name> {
        &self.sequences
    }

    /// Returns the type of the values of a field, a number field or a sequence field; `None` if the
    /// table has no field of this name.
    pub fn field_type(&self, name: &str) -> Option<FieldType> {
        let of_number = || self.numbers.contains_key(name).then_some(FieldType::String);
        let of_sequence = || self.sequences.contains_key(name).then_some(FieldType::Int64);
        self.fields.get(name).copied().or_else(of_number).or_else(of_sequence)
    }

    /// Checks that a field can have a value.
    ///
    /// # Errors
    /// Fails if the table has no such field, or if the field has another type.
    pub fn check(&self, field: &Name, value: &Value) -> Result<(), InvalidRecord> {
        let (holds, found) = (self.check_known(field)?, value.field_type());
        if holds == found {
            return Ok(());
        }
        Err(InvalidRecord::FieldType(self.name.clone(), field.clone(), holds, found))
    }

    /// Checks that the table has a field, and returns its type.
    ///
    /// # Errors
    /// Fails if the table has no such field.
    pub fn check_known(&self, field: &Name) -> Result<FieldType, InvalidRecord> {
        let holds = self.field_type(field.as_str());
        holds.ok_or_else(|| InvalidRecord::UnknownField(self.name.clone(), field.clone()))
    }

    /// Returns why a command cannot give a field its value: the node gives it. `None` for every
    /// other field.
    pub fn why_not_sent(&self, field: &str) -> Option<String> {
        let from = if let Some(series) = self.numbers.get(field) {
            format!("series `{series}`")
        } else if let Some(sequence) = self.sequences.get(field) {
            format!("sequence `{sequence}`")
        } else if self.stamps.contains_key(field) {
            "time of the event".to_owned()
        } else {
            return None;
        };
        let table = &self.name;
        Some(format!(
            "the field `{field}` of {table} gets its value from the {from}: leave the field out"
        ))
    }

    /// Returns the containers, each with the table of its records.
    pub fn containers(&self) -> &BTreeMap<Name, QName> {
        &self.containers
    }
}
