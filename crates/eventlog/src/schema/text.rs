//! The text form of a schema.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{InvalidSchema, Schema, Table};
use crate::{FieldType, Name, QName, RecordId, TableKind};

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct SchemaText {
    tables: BTreeMap<QName, TableText>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    sequences: BTreeMap<String, BTreeMap<Name, u16>>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct TableText {
    kind: TableKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    fields: BTreeMap<Name, FieldType>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    numbers: BTreeMap<Name, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    sequences: BTreeMap<Name, Name>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    containers: BTreeMap<Name, QName>,
}

/// Reads a schema from TOML.
impl FromStr for Schema {
    type Err = InvalidSchema;

    fn from_str(text: &str) -> Result<Schema, InvalidSchema> {
        let text: SchemaText =
            toml::from_str(text).map_err(|error| InvalidSchema::Text(error.to_string()))?;
        let table = |(name, text): (QName, TableText)| {
            let TableText { kind, id, fields, numbers, sequences, containers } = text;
            let numbers = numbers.into_iter();
            let numbers =
                numbers.map(|(name, series)| (name, series.to_ascii_lowercase())).collect();
            Table { name, kind, id: id.map(RecordId), fields, numbers, sequences, containers }
        };
        let schema = Schema::new(text.tables.into_iter().map(table))?;
        Ok(Schema { sequences: text.sequences, ..schema })
    }
}

/// Writes a schema as TOML. The same schema always has the same text.
impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |table: &Table| {
            let Table { name, kind, id, fields, numbers, sequences, containers } = table.clone();
            let id = id.map(|id| id.0);
            (name, TableText { kind, id, fields, numbers, sequences, containers })
        };
        let tables = self.tables().map(text).collect();
        let text = SchemaText { tables, sequences: self.sequences.clone() };
        f.write_str(&toml::to_string(&text).map_err(|_| fmt::Error)?)
    }
}

impl Serialize for QName {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl Serialize for Name {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for QName {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<QName, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Name, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}
