//! A table of a schema.

use std::{collections::BTreeMap, ops::RangeInclusive};

use crate::{FieldType, Name, QName, RecordId, TableKind};

/// The ids that singletons may have.
pub const SINGLETON_IDS: RangeInclusive<u64> = 65_536..=66_047;

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub(super) name: QName,
    pub(super) kind: TableKind,
    /// The id of the record, if the table is a singleton.
    pub(super) id: Option<RecordId>,
    pub(super) fields: BTreeMap<Name, FieldType>,
    pub(super) containers: BTreeMap<Name, QName>,
}

impl Table {
    /// Makes a table without fields.
    pub fn new(name: QName, kind: TableKind) -> Table {
        Table { name, kind, id: None, fields: BTreeMap::new(), containers: BTreeMap::new() }
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

    /// Returns the containers, each with the table of its records.
    pub fn containers(&self) -> &BTreeMap<Name, QName> {
        &self.containers
    }
}
