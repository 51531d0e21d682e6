//! Reads settings into their types. An error tells the operator which value is expected.
//!
//! The errors of serde name types of Rust, such as `u16`. So this module has a `Deserializer` of
//! its own, whose errors name the values that a setting may have.

use std::fmt::Display;

use serde::{
    Deserializer,
    de::{
        DeserializeOwned, Error, IntoDeserializer, Visitor,
        value::{MapAccessDeserializer, MapDeserializer, SeqDeserializer},
    },
    forward_to_deserialize_any,
};
use serde_path_to_error::Segment;
use toml::Value;

/// Reads a type from a value. The error contains the key of the wrong setting, and the reason.
pub(super) fn read<T: DeserializeOwned>(value: &Value) -> Result<T, (String, String)> {
    serde_path_to_error::deserialize(Setting(value)).map_err(|error| {
        let keys = error.path().iter().map(|segment| match segment {
            Segment::Seq { index } => index.to_string(),
            key => key.to_string(),
        });
        (keys.collect::<Vec<_>>().join("."), error.into_inner().0)
    })
}

/// The reason why a setting cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct WrongSetting(String);

impl Error for WrongSetting {
    fn custom<T: Display>(why: T) -> WrongSetting {
        WrongSetting(why.to_string())
    }

    fn unknown_field(key: &str, known: &'static [&'static str]) -> WrongSetting {
        unknown("key", key, known)
    }

    fn unknown_variant(name: &str, known: &'static [&'static str]) -> WrongSetting {
        unknown("value", name, known)
    }

    fn missing_field(key: &'static str) -> WrongSetting {
        WrongSetting(format!("the key `{key}` is missing"))
    }
}

fn unknown(kind: &str, name: &str, known: &[&str]) -> WrongSetting {
    let likeness = |known: &str| strsim::jaro(name, known);
    let nearest = known.iter().max_by(|one, other| likeness(one).total_cmp(&likeness(other)));
    let nearest = nearest.filter(|known| likeness(known) > 0.7);
    let question = nearest.map(|known| format!(", did you mean `{known}`?")).unwrap_or_default();
    let known = known.join("`, `");
    WrongSetting(format!("unknown {kind} `{name}`{question} (expected: `{known}`)"))
}

/// A value that was set.
#[derive(Clone, Copy)]
struct Setting<'a>(&'a Value);

impl Setting<'_> {
    /// Makes the error for a value of another type or range.
    fn expected<T>(self, expected: impl Display) -> Result<T, WrongSetting> {
        let found = match self.0 {
            Value::Array(_) => "a list; `[[…]]` makes a list".to_owned(),
            Value::Table(_) => "a table".to_owned(),
            // A URL may have a password before an `@`.
            Value::String(text) if text.contains('@') => "this text".to_owned(),
            scalar => format!("`{scalar}`"),
        };
        Err(WrongSetting(format!("{expected} is expected, and not {found}")))
    }
}

impl<'de> IntoDeserializer<'de, WrongSetting> for Setting<'de> {
    type Deserializer = Setting<'de>;

    fn into_deserializer(self) -> Setting<'de> {
        self
    }
}

/// Reads whole numbers.
macro_rules! whole_numbers {
    ($($method:ident: $number:ty, $visit:ident;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WrongSetting> {
            let number = self.0.as_integer().and_then(|number| <$number>::try_from(number).ok());
            // Only a type without 0 refuses a number.
            let read = visitor.$visit::<WrongSetting>(number.unwrap_or(0));
            let (min, max) = (u8::from(read.is_err()), i64::try_from(<$number>::MAX));
            match read {
                Ok(read) if number.is_some() => Ok(read),
                _ => {
                    let max = max.unwrap_or(i64::MAX);
                    self.expected(format!("a whole number from {min} to {max}"))
                }
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Setting<'de> {
    type Error = WrongSetting;

    whole_numbers! {
        deserialize_u8: u8, visit_u8;
        deserialize_u16: u16, visit_u16;
        deserialize_u32: u32, visit_u32;
        deserialize_u64: u64, visit_u64;
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WrongSetting> {
        match self.0 {
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Integer(number) => visitor.visit_f64(*number as f64),
            _ => self.expected("a number, such as 20 or 0.5,"),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WrongSetting> {
        match self.0 {
            Value::Boolean(value) => visitor.visit_bool(*value),
            _ => self.expected("true or false"),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WrongSetting> {
        match self.0 {
            Value::String(text) => visitor.visit_str(text),
            // A shell removes the outer quotes of a variable.
            _ => self.expected("a text in quotes (in a shell: '\"…\"')"),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WrongSetting> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WrongSetting> {
        visitor.visit_some(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WrongSetting> {
        match self.0 {
            Value::Array(values) => {
                visitor.visit_seq(SeqDeserializer::new(values.iter().map(Setting)))
            }
            _ => self.expected("a list in brackets"),
        }
    }

    /// A list is no table, although a derived reader would take its entries for the values of the
    /// keys, in their order.
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WrongSetting> {
        match self.0 {
            Value::Table(table) => visitor.visit_map(entries(table)),
            _ => self.expected("a table"),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, WrongSetting> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, WrongSetting> {
        match self.0 {
            Value::String(name) => visitor.visit_enum(name.as_str().into_deserializer()),
            Value::Table(table) if table.len() == 1 => {
                visitor.visit_enum(MapAccessDeserializer::new(entries(table)))
            }
            _ => self.expected("a name in quotes, or a table with one key,"),
        }
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WrongSetting> {
        self.0.clone().deserialize_any(visitor).map_err(WrongSetting::custom)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u128 f32 char bytes byte_buf unit unit_struct newtype_struct tuple
        tuple_struct identifier ignored_any
    }
}

fn entries(
    table: &toml::Table,
) -> MapDeserializer<'_, impl Iterator<Item = (&str, Setting<'_>)>, WrongSetting> {
    MapDeserializer::new(table.iter().map(|(key, value)| (key.as_str(), Setting(value))))
}
