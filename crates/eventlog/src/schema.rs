//! The schema: the tables of an application.

mod errors;
mod evolution;
mod record;
mod table;
mod text;

use std::collections::BTreeMap;

pub use self::{
    errors::{IncompatibleSchema, InvalidRecord, InvalidSchema},
    table::{SINGLETON_IDS, Table},
};
use crate::{Name, QName, RecordId, TableKind};

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
/// [tables."shop.Bill"]
/// kind = "WDoc"
/// fields = { customer = "string" }
/// numbers = { number = "bill" } # a new bill gets the next number of the series `bill`
///
/// [tables."shop.Settings"]
/// kind = "Singleton"
/// id = 65600
/// "#
/// .parse()?;
/// assert_eq!(schema.tables().count(), 4);
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
        schema.check_names()?;
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

    fn check_names(&self) -> Result<(), InvalidSchema> {
        for table in self.tables() {
            let is_number_too = |name: &&Name| table.numbers.contains_key(*name);
            let is_container_too = |name: &&Name| table.containers.contains_key(*name);
            let mut fields = table.fields.keys();
            let twice = fields.find(|name| is_number_too(name) || is_container_too(name));
            if let Some(name) = twice.or_else(|| table.numbers.keys().find(is_container_too)) {
                return Err(InvalidSchema::SameName(table.name.clone(), name.clone()));
            }
        }
        Ok(())
    }

    fn check_containers(&self) -> Result<(), InvalidSchema> {
        for table in self.tables() {
            for (container, records) in &table.containers {
                let (name, container) = (table.name.clone(), container.clone());
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
}
