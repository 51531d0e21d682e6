//! Bytes of applications in JSON: the arguments of commands and the results of handlers.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use bytes::Bytes;
use serde::{
    Deserializer, Serialize,
    de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

/// Bytes of an application: JSON as it is, and other bytes as a text in Base64.
///
/// JSON that is written again could become longer, because `1e15` would get all its digits. And a
/// key that an object has twice would be lost.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum BytesBody<'b> {
    Json(&'b RawValue),
    Other { base64: String },
}

impl<'b> BytesBody<'b> {
    pub(crate) fn of(bytes: &'b Bytes) -> BytesBody<'b> {
        match readable_json(bytes) {
            Some(json) => BytesBody::Json(json),
            None => BytesBody::Other { base64: BASE64.encode(bytes) },
        }
    }
}

/// The most levels of lists and objects. Many clients read 127 or 128 levels, and an answer has
/// levels of its own around these bytes.
const LEVELS: usize = 64;

/// Returns JSON that a client can read: it is not nested too deeply, and its numbers and texts have
/// values. A client that cannot read one result cannot read the whole answer of its batch.
fn readable_json(bytes: &[u8]) -> Option<&RawValue> {
    // A `RawValue` may be any JSON.
    let readable = ReadableJson { levels: LEVELS };
    readable.deserialize(&mut serde_json::Deserializer::from_slice(bytes)).ok()?;
    serde_json::from_slice(bytes).ok()
}

/// Reads a value with at most this many levels.
#[derive(Clone, Copy)]
struct ReadableJson {
    levels: usize,
}

impl ReadableJson {
    /// Returns the reader of the values in a list or an object.
    fn inner<E: Error>(self) -> Result<ReadableJson, E> {
        let levels = self.levels.checked_sub(1).ok_or_else(|| E::custom("too many levels"))?;
        Ok(ReadableJson { levels })
    }
}

impl<'de> DeserializeSeed<'de> for ReadableJson {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ReadableJson {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let inner = self.inner()?;
        while list.next_element_seed(inner)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        let inner = self.inner()?;
        while object.next_entry_seed(inner, inner)?.is_some() {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> String {
        serde_json::to_string(&BytesBody::of(&Bytes::copy_from_slice(bytes))).unwrap()
    }

    #[test]
    fn bytes_are_json_as_it_is_or_base64() {
        let as_it_is: [&str; 5] = [
            r#"{ "b": 1e15, "a": [-0, null, true], "a": "\u00e9é" }"#,
            "7",
            "0.10",
            r#""x""#,
            "[]",
        ];
        for json in as_it_is {
            assert_eq!(text(json.as_bytes()), json);
        }
        assert_eq!(text(b"\xff\x00ab"), r#"{"base64":"/wBhYg=="}"#);
        for other in ["", "{", "[1,]", "1 2", "NaN", "1e999", r#""\ud800""#, "\"\u{1}\""] {
            let expected = format!(r#"{{"base64":"{}"}}"#, BASE64.encode(other));
            assert_eq!(text(other.as_bytes()), expected, "{other}");
        }
    }

    /// Bytes of 127 levels could be read alone, but not in the answer of a batch, which adds three.
    #[test]
    fn bytes_of_many_levels_are_base64() {
        let nested = |levels| "[".repeat(levels) + &"]".repeat(levels);
        let objects = |levels| r#"{"a":"#.repeat(levels) + "1" + &"}".repeat(levels);
        for (readable, deep) in [(nested(64), nested(65)), (objects(64), objects(65))] {
            assert_eq!(text(readable.as_bytes()), readable);
            assert!(text(deep.as_bytes()).starts_with(r#"{"base64":"#));
        }
        assert!(text(nested(100_000).as_bytes()).starts_with(r#"{"base64":"#));
    }
}
