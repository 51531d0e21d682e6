//! The schema: the tables of an application.

mod errors;
mod text;

use std::{collections::BTreeMap, ops::RangeInclusive};

pub use self::errors::{IncompatibleSchema, InvalidRecord, InvalidSchema};
use crate::{FieldType, Name, QName, Record, RecordId, TableKind};

/// The ids that singletons may have.
pub const SINGLETON_IDS: RangeInclusive<u64> = 65_536..=66_047;

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    name: QName,
    kind: TableKind,
    /// The id of the record, if the table is a singleton.
    id: Option<RecordId>,
    fields: BTreeMap<Name, FieldType>,
    containers: BTreeMap<Name, QName>,
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

/// All tables of an application.
///
/// ```
/// use eventlog::Schema;
///
/// let schema: Schema = r#"
/// [tables."shop.Article"]
/// kind = "CDoc"
/// fields = { name = "string", weight = "float64" }
/// containers = { prices = "shop.Price" }
///
/// [tables."shop.Price"]
/// kind = "CRecord"
/// fields = { cents = "int64" }
///
/// [tables."shop.Settings"]
/// kind = "Singleton"
/// id = 65600
/// "#
/// .parse()?;
/// assert_eq!(schema.tables().count(), 3);
/// # Ok::<(), eventlog::InvalidSchema>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    tables: BTreeMap<QName, Table>,
}

impl Schema {
    /// Makes a schema from tables.
    ///
    /// # Errors
    /// Fails if the tables do not fit together.
    pub fn new(tables: impl IntoIterator<Item = Table>) -> Result<Schema, InvalidSchema> {
        let mut schema = Schema::default();
        for table in tables {
            let name = table.name.clone();
            if schema.tables.insert(name.clone(), table).is_some() {
                return Err(InvalidSchema::Twice(name));
            }
        }
        schema.check_containers()?;
        schema.check_singletons()?;
        Ok(schema)
    }

    /// Returns all tables, by name.
    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.values()
    }

    /// Returns a table.
    pub fn table(&self, name: &QName) -> Option<&Table> {
        self.tables.get(name)
    }

    fn check_containers(&self) -> Result<(), InvalidSchema> {
        for table in self.tables() {
            for (container, records) in &table.containers {
                let (name, container) = (table.name.clone(), container.clone());
                if table.fields.contains_key(&container) {
                    return Err(InvalidSchema::FieldAndContainer(name, container));
                }
                let Some(found) = self.table(records) else {
                    return Err(InvalidSchema::UnknownTable(name, container, records.clone()));
                };
                let (expected, found) = (table.kind.children(), found.kind);
                if expected != found {
                    let records = records.clone();
                    return Err(InvalidSchema::WrongKind(
                        name, container, records, expected, found,
                    ));
                }
            }
        }
        Ok(())
    }

    fn check_singletons(&self) -> Result<(), InvalidSchema> {
        let mut ids: BTreeMap<u64, &QName> = BTreeMap::new();
        for table in self.tables() {
            let name = table.name.clone();
            match (table.kind, table.id) {
                (TableKind::Singleton, Some(RecordId(id))) => {
                    if !SINGLETON_IDS.contains(&id) {
                        return Err(InvalidSchema::Id(name, id));
                    }
                    if let Some(other) = ids.insert(id, &table.name) {
                        return Err(InvalidSchema::SameId(other.clone(), name, id));
                    }
                }
                (TableKind::Singleton, None) => return Err(InvalidSchema::NoId(name)),
                (_, Some(_)) => return Err(InvalidSchema::NotSingleton(name)),
                (_, None) => {}
            }
        }
        Ok(())
    }

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
            match table.fields.get(&field) {
                None => return Err(InvalidRecord::UnknownField(name, field)),
                Some(holds) if *holds != found => {
                    return Err(InvalidRecord::FieldType(name, field, *holds, found));
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

    /// Checks that records of an earlier schema can be read with this one.
    ///
    /// # Errors
    /// Fails with the first obstacle.
    pub fn can_follow(&self, earlier: &Schema) -> Result<(), IncompatibleSchema> {
        for was in earlier.tables() {
            let name = || was.name.clone();
            let is = self.table(&was.name).ok_or_else(|| IncompatibleSchema::TableGone(name()))?;
            if is.kind != was.kind {
                return Err(IncompatibleSchema::Kind(name(), was.kind, is.kind));
            }
            if is.id != was.id {
                return Err(IncompatibleSchema::Id(name(), was.id.map_or(0, |id| id.0)));
            }
            for (field, held) in &was.fields {
                match is.fields.get(field) {
                    None => return Err(IncompatibleSchema::FieldGone(name(), field.clone())),
                    Some(holds) if holds != held => {
                        let field = field.clone();
                        return Err(IncompatibleSchema::Retyped(name(), field, *held, *holds));
                    }
                    Some(_) => {}
                }
            }
            for (container, records) in &was.containers {
                if is.containers.get(container) != Some(records) {
                    return Err(IncompatibleSchema::Container(
                        name(),
                        container.clone(),
                        records.clone(),
                    ));
                }
            }
        }
        Ok(())
    }
}
