//! The text form of a schema.

mod reader;

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{InvalidSchema, Schema};
use crate::{Name, QName};

impl Schema {
    /// Reads a schema from TOML. Returns the part that can be read, and all mistakes. A program
    /// that finds more mistakes in the rest can report them together with these.
    pub fn read(text: &str) -> (Schema, Vec<InvalidSchema>) {
        reader::read(text)
    }
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
        f.write_str(&toml::to_string(self).map_err(|_| fmt::Error)?)
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
