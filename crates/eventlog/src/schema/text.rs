//! The text form of a schema.

mod reader;

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{InvalidSchema, Schema, Table};
use crate::{FieldType, Name, QName, TableKind};

#[derive(Serialize)]
struct SchemaText {
    tables: BTreeMap<QName, TableText>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    sequences: BTreeMap<String, BTreeMap<Name, u16>>,
}

#[derive(Serialize)]
struct TableText {
    kind: TableKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    fields: BTreeMap<Name, FieldType>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    numbers: BTreeMap<Name, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    sequences: BTreeMap<Name, Name>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    containers: BTreeMap<Name, QName>,
}

/// Reads a schema from TOML.
impl FromStr for Schema {
    type Err = InvalidSchema;

    fn from_str(text: &str) -> Result<Schema, InvalidSchema> {
        let (schema, mistakes) = Schema::read(text);
        base::none_of(mistakes, InvalidSchema::Several)?;
        Ok(schema)
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
