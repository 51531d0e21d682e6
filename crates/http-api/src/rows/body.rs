//! Rows as a client sends them. No value may be given twice or by its position.

use std::{collections::BTreeMap, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error as _, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::Value as Json;
use vvm::eventlog::{Epoch, Offset, Version};

use crate::whole_number::whole;

/// A value that is sent as a JSON object. The derived `Deserialize` accepts an array, too, and then
/// the order of the fields would be a promise.
#[derive(Debug)]
pub(crate) struct JsonObject<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonObject<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<JsonObject<T>, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = JsonObject<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, from: A) -> Result<JsonObject<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(from)).map(JsonObject)
            }
        }

        from.deserialize_map(ObjectVisitor(PhantomData))
    }
}

/// A row as a client sends it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct RowBody {
    #[serde(deserialize_with = "whole")]
    pub(super) id: u64,
    pub(super) table: String,
    pub(super) parent: Option<JsonObject<ParentBody>>,
    pub(super) version: Option<JsonObject<VersionBody>>,
    pub(super) is_active: Option<bool>,
    #[serde(default)]
    pub(super) fields: FieldsBody,
}

/// Fields as a client sends them.
pub(crate) type FieldsBody = UniqueNames<FieldBody>;

/// The value of a field as a client sends it. No object inside has a name twice.
#[derive(Debug)]
pub(crate) struct FieldBody(pub(crate) Json);

impl<'de> Deserialize<'de> for FieldBody {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<FieldBody, D::Error> {
        struct FieldVisitor;

        impl<'de> Visitor<'de> for FieldVisitor {
            type Value = FieldBody;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_bool<E>(self, value: bool) -> Result<FieldBody, E> {
                Ok(FieldBody(value.into()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<FieldBody, E> {
                Ok(FieldBody(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<FieldBody, E> {
                Ok(FieldBody(value.into()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<FieldBody, E> {
                Ok(FieldBody(value.into()))
            }

            fn visit_str<E>(self, value: &str) -> Result<FieldBody, E> {
                Ok(FieldBody(value.into()))
            }

            fn visit_unit<E>(self) -> Result<FieldBody, E> {
                Ok(FieldBody(Json::Null))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<FieldBody, A::Error> {
                let mut all = Vec::new();
                while let Some(FieldBody(value)) = from.next_element()? {
                    all.push(value);
                }
                Ok(FieldBody(all.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, from: A) -> Result<FieldBody, A::Error> {
                let from = MapAccessDeserializer::new(from);
                let UniqueNames(all) = UniqueNames::<FieldBody>::deserialize(from)?;
                Ok(FieldBody(
                    all.into_iter().map(|(name, FieldBody(value))| (name, value)).collect(),
                ))
            }
        }

        from.deserialize_any(FieldVisitor)
    }
}

/// An object as a client sends it. JSON may have a name twice; such an object is refused, because
/// the meaning is not clear.
#[derive(Debug)]
pub(crate) struct UniqueNames<T>(pub(crate) BTreeMap<String, T>);

impl<T> UniqueNames<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> Default for UniqueNames<T> {
    fn default() -> UniqueNames<T> {
        UniqueNames(BTreeMap::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for UniqueNames<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<UniqueNames<T>, D::Error> {
        struct UniqueNamesVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for UniqueNamesVisitor<T> {
            type Value = UniqueNames<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<UniqueNames<T>, A::Error> {
                let mut all = BTreeMap::new();
                while let Some((name, value)) = from.next_entry::<String, T>()? {
                    if all.contains_key(&name) {
                        return Err(A::Error::custom(format!("the name `{name}` is there twice")));
                    }
                    all.insert(name, value);
                }
                Ok(UniqueNames(all))
            }
        }

        from.deserialize_map(UniqueNamesVisitor(PhantomData))
    }
}

/// The parent of a row, and the container in the parent.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ParentBody {
    #[serde(deserialize_with = "whole")]
    pub(super) id: u64,
    pub(super) container: String,
}

/// The event that wrote a row last.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VersionBody {
    #[serde(deserialize_with = "whole")]
    epoch: u64,
    #[serde(deserialize_with = "whole")]
    offset: u64,
}

impl From<Version> for VersionBody {
    fn from(version: Version) -> VersionBody {
        VersionBody { epoch: version.epoch.0, offset: version.plog.0 }
    }
}

impl From<VersionBody> for Version {
    fn from(version: VersionBody) -> Version {
        Version { epoch: Epoch(version.epoch), plog: Offset(version.offset) }
    }
}
