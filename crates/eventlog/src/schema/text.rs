//! A schema as text.

use std::{collections::BTreeMap, str::FromStr};

use serde::Deserialize;

use super::{BadSchema, Schema, Table};
use crate::{FieldType, Name, QName, RecordId, TableKind};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    tables: BTreeMap<QName, TextOfTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TextOfTable {
    kind: TableKind,
    id: Option<u64>,
    #[serde(default)]
    fields: BTreeMap<Name, FieldType>,
    #[serde(default)]
    containers: BTreeMap<Name, QName>,
}

/// From TOML.
impl FromStr for Schema {
    type Err = BadSchema;

    fn from_str(text: &str) -> Result<Schema, BadSchema> {
        let text: Text =
            toml::from_str(text).map_err(|error| BadSchema::Text(error.to_string()))?;
        let table = |(name, text): (QName, TextOfTable)| {
            let TextOfTable { kind, id, fields, containers } = text;
            Table { name, kind, id: id.map(RecordId), fields, containers }
        };
        Schema::new(text.tables.into_iter().map(table))
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
