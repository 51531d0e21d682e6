//! The schema: the tables of an application.

mod errors;
mod evolution;
mod judge;
mod rules;
mod stamps;
mod table;
mod text;

use std::collections::{BTreeMap, BTreeSet};

pub use self::{
    errors::{IncompatibleSchema, InvalidRecord, InvalidSchema},
    judge::BrokenRule,
    rules::FieldRules,
    stamps::Stamp,
    table::{SINGLETON_IDS, Table},
};
use crate::{Name, QName, Record, RecordId, TableKind};

/// All tables of an application, and the ids of its sequences.
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
/// fields.customer = { type = "string", required = true, immutable = true } # never changes
/// fields.cents = { type = "int64", min = 0, default = 0 } # never negative
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
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Schema {
    tables: BTreeMap<QName, Table>,
    /// The id of each sequence of the application, by kind of workspaces and name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    sequences: BTreeMap<String, BTreeMap<Name, u16>>,
}

impl Schema {
    /// Makes a schema from tables.
    ///
    /// # Errors
    /// Fails with all mistakes if the tables do not fit together.
    pub fn new(tables: impl IntoIterator<Item = Table>) -> Result<Schema, InvalidSchema> {
        let (mut schema, mut mistakes) = (Schema::default(), Vec::new());
        for table in tables {
            let name = table.name.clone();
            if schema.tables.insert(name.clone(), table).is_some() {
                mistakes.push(InvalidSchema::Twice(name));
            }
        }
        mistakes.extend(schema.mistakes());
        base::none_of(mistakes, InvalidSchema::Several)?;
        Ok(schema)
    }

    /// Adds a table.
    ///
    /// # Errors
    /// Fails if the tables do not fit together.
    pub fn with_table(self, table: Table) -> Result<Schema, InvalidSchema> {
        let schema = Schema::new(self.tables.into_values().chain([table]))?;
        Ok(Schema { sequences: self.sequences, ..schema })
    }

    /// Adds a sequence of the workspaces of a kind. A sequence with the same name is replaced.
    ///
    /// The stored numbers belong to the id, so a schema that follows this one must have the same id
    /// for this sequence.
    #[must_use]
    pub fn with_sequence(mut self, kind: &str, name: Name, id: u16) -> Schema {
        self.sequences.entry(kind.to_owned()).or_default().insert(name, id);
        self
    }

    /// Returns the id of each sequence of the application, by kind of workspaces and name.
    pub fn sequences(&self) -> &BTreeMap<String, BTreeMap<Name, u16>> {
        &self.sequences
    }

    /// Returns all tables, by name.
    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.values()
    }

    /// Returns a table.
    pub fn table(&self, name: &QName) -> Option<&Table> {
        self.tables.get(name)
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
        record.fields.iter().try_for_each(|(field, value)| table.check(field, value))
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

    /// The reasons why the tables do not fit together.
    fn mistakes(&self) -> Vec<InvalidSchema> {
        let names = self.tables().filter_map(Schema::same_name);
        let wrong = self.wrong_containers().chain(self.wrong_singletons());
        names.chain(wrong).chain(self.wrong_rules()).chain(self.wrong_stamps()).collect()
    }

    fn same_name(table: &Table) -> Option<InvalidSchema> {
        let (fields, numbers) = (table.fields.keys(), table.numbers.keys());
        let (sequences, containers) = (table.sequences.keys(), table.containers.keys());
        let mut names = BTreeSet::new();
        let mut all = fields.chain(numbers).chain(sequences).chain(containers);
        let twice = all.find(|name| !names.insert(*name))?;
        Some(InvalidSchema::SameName(table.name.clone(), twice.clone()))
    }

    fn wrong_containers(&self) -> impl Iterator<Item = InvalidSchema> {
        let containers = self.tables().flat_map(|table| {
            table.containers.iter().map(move |(container, records)| (table, container, records))
        });
        containers.filter_map(|(table, container, records)| {
            let of = (table.name.clone(), container.clone(), records.clone());
            let Some(found) = self.table(records) else {
                return Some(InvalidSchema::UnknownTable(of.0, of.1, of.2));
            };
            let (expected, found) = (table.kind.children(), found.kind);
            let wrong = InvalidSchema::WrongKind(of.0, of.1, of.2, expected, found);
            (expected != found).then_some(wrong)
        })
    }

    fn wrong_rules(&self) -> impl Iterator<Item = InvalidSchema> {
        let rules = self
            .tables()
            .flat_map(|table| table.rules.iter().map(move |(field, rules)| (table, field, rules)));
        rules.flat_map(|(table, field, rules)| {
            let mut mistakes = match table.fields.get(field) {
                Some(holds) => rules.mistakes(*holds),
                None => vec!["rules need a field whose value a command gives".to_owned()],
            };
            let unknown = rules.to.iter().filter(|to| self.table(to).is_none());
            mistakes.extend(unknown.map(|to| format!("`to` names {to}, which is not a table")));
            wrong_field(table, field, mistakes)
        })
    }

    fn wrong_stamps(&self) -> impl Iterator<Item = InvalidSchema> {
        let stamps = self
            .tables()
            .flat_map(|table| table.stamps.iter().map(move |(field, stamp)| (table, field, stamp)));
        stamps.flat_map(|(table, field, stamp)| {
            wrong_field(table, field, wrong_stamp(table, field, stamp))
        })
    }

    fn wrong_singletons(&self) -> Vec<InvalidSchema> {
        let mut ids: BTreeMap<u64, &QName> = BTreeMap::new();
        let mut wrong = Vec::new();
        for table in self.tables() {
            let name = table.name.clone();
            match (table.kind, table.id) {
                (TableKind::Singleton, Some(RecordId(id))) => {
                    if !SINGLETON_IDS.contains(&id) {
                        wrong.push(InvalidSchema::Id(name, id));
                    } else if let Some(other) = ids.insert(id, &table.name) {
                        wrong.push(InvalidSchema::SameId(other.clone(), name, id));
                    }
                }
                (TableKind::Singleton, None) => wrong.push(InvalidSchema::NoId(name)),
                (_, Some(_)) => wrong.push(InvalidSchema::NotSingleton(name)),
                (_, None) => {}
            }
        }
        wrong
    }
}

fn wrong_field(
    table: &Table,
    field: &Name,
    mistakes: Vec<String>,
) -> impl Iterator<Item = InvalidSchema> {
    let of = (table.name.clone(), field.clone());
    mistakes.into_iter().map(move |why| InvalidSchema::Rule(of.0.clone(), of.1.clone(), why))
}

/// The reasons why a stamp does not fit its field or the table.
fn wrong_stamp(table: &Table, field: &Name, stamp: &Stamp) -> Vec<String> {
    let mut wrong = Vec::new();
    let holds = stamp.holds();
    if table.fields.get(field) != Some(&holds) {
        wrong.push(format!("this stamp needs a field of the type {holds}"));
    }
    if table.rules.contains_key(field) {
        wrong.push("a stamp has no rules, because no command gives its value".to_owned());
    }
    if let Stamp::Date { of, .. } = stamp
        && !matches!(table.stamps.get(of), Some(Stamp::Created | Stamp::Changed))
    {
        wrong.push(format!(
            "`from = \"{of}\"` must name a field of the table with \
                 `stamp = \"created\"` or `stamp = \"changed\"`"
        ));
    }
    wrong
}
