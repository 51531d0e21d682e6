//! JSON with one meaning: no object has a name twice.
//!
//! Readers of JSON do not agree on a name that comes twice: most take the last one. So this program
//! could read another limit of a grant than the issuer, or a proxy, has read.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};

/// Reads JSON, and refuses an object with a name twice, at any depth.
pub(crate) fn value(json: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice(json).map(|UniqueValue(value)| value)
}

/// Reads an object. A list of the members in their order is refused.
pub(crate) fn object<T: DeserializeOwned>(value: Value) -> serde_json::Result<T> {
    match value {
        Value::Object(_) => serde_json::from_value(value),
        _ => Err(serde_json::Error::custom("an object is expected")),
    }
}

/// An object that [`value`] and [`object`] read.
pub(crate) struct Strict<T>(pub(crate) T);

impl<'de, T: DeserializeOwned> Deserialize<'de> for Strict<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Strict<T>, D::Error> {
        let UniqueValue(value) = UniqueValue::deserialize(from)?;
        object(value).map(Strict).map_err(D::Error::custom)
    }
}

struct UniqueValue(Value);

impl<'de> Deserialize<'de> for UniqueValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<UniqueValue, D::Error> {
        from.deserialize_any(UniqueVisitor).map(UniqueValue)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("no finite number"))?;
        Ok(Value::Number(number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(UniqueValue(value)) = from.next_element()? {
            all.push(value);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some((name, UniqueValue(value))) = from.next_entry::<String, _>()? {
            if all.contains_key(&name) {
                return Err(A::Error::custom(format!("the name `{name}` is there twice")));
            }
            all.insert(name, value);
        }
        Ok(Value::Object(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_comes_twice_is_refused_at_any_depth() {
        let json = br#"{"a":[{"b":-1,"c":2.5},null,true,"d"],"e":{"a":18446744073709551615}}"#;
        assert_eq!(value(json).unwrap(), serde_json::from_slice::<Value>(json).unwrap());
        for twice in [r#"{"a":1,"a":1}"#, r#"[{"x":{"a":1,"b":2,"a":3}}]"#, r#"{"a":1,"\u0061":1}"#]
        {
            let error = value(twice.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("the name `a` is there twice"), "{error}");
        }
    }
}
