//! Bytes of applications in JSON: the arguments of commands and the results of handlers.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use bytes::Bytes;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{MapAccess, SeqAccess, Visitor},
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
        let json = serde_json::from_slice::<ReadableJson>(bytes);
        match json.and_then(|ReadableJson| serde_json::from_slice(bytes)) {
            Ok(json) => BytesBody::Json(json),
            Err(_) => BytesBody::Other { base64: BASE64.encode(bytes) },
        }
    }
}

/// JSON that a client can read: it is not nested too deeply, and its numbers and texts have values.
/// A `RawValue` may be any JSON. A client that cannot read one result cannot read the whole answer
/// of its batch.
struct ReadableJson;

impl<'de> Deserialize<'de> for ReadableJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ReadableJson, D::Error> {
        deserializer.deserialize_any(ReadableJson)
    }
}

impl<'de> Visitor<'de> for ReadableJson {
    type Value = ReadableJson;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<ReadableJson, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<ReadableJson, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<ReadableJson, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<ReadableJson, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<ReadableJson, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<ReadableJson, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ReadableJson, A::Error> {
        while let Some(ReadableJson) = list.next_element()? {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<ReadableJson, A::Error> {
        while let Some((ReadableJson, ReadableJson)) = object.next_entry()? {}
        Ok(self)
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
        // The parsers of many clients end with an overflow, or refuse the whole answer.
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        assert!(text(deep.as_bytes()).starts_with(r#"{"base64":"#));
    }
}
