//! The lines of a stream. Each is a JSON object with one field, which names the kind of the line.

use bytes::Bytes;
use docnumbers::StoredDefinitions;
use serde::{Deserialize, Serialize};

/// The format of the streams that this program writes, and the only one that it reads.
pub const FORMAT_VERSION: u64 = 2;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) enum Line {
    Header(HeaderLine),
    Event(EventLine),
    Fencing(FencingLine),
    Copy(CopyLine),
    Record(RecordLine),
    Number(NumberLine),
    Series(SeriesLine),
    Counter(CounterLine),
    Range(RangeLine),
    End(EndLine),
}

/// The part of the header that every version has.
#[derive(Debug, Deserialize)]
pub(crate) struct AnyHeader {
    pub(crate) header: AnyHeaderLine,
}

#[derive(Debug, Deserialize)]
pub(crate) struct AnyHeaderLine {
    pub(crate) format: u64,
}

/// The application and its deployment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct HeaderLine {
    pub(crate) format: u64,
    pub(crate) app: String,
    pub(crate) partitions: u16,
    pub(crate) trust_level: u8,
    /// The first bytes of the rows of applications.
    pub(crate) row_formats: Vec<u8>,
    /// The tables, in TOML.
    pub(crate) schema: String,
}

/// An event or a marker in the log of a partition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct EventLine {
    pub(crate) partition: u16,
    pub(crate) offset: u64,
    pub(crate) ws: u64,
    pub(crate) wlog: u64,
    #[serde(with = "base64_text")]
    pub(crate) bytes: Bytes,
}

/// A fencing entry in the log of a partition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct FencingLine {
    pub(crate) partition: u16,
    pub(crate) offset: u64,
    #[serde(with = "base64_text")]
    pub(crate) bytes: Bytes,
}

/// The whole copy of a marked event in the log of its workspace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct CopyLine {
    pub(crate) ws: u64,
    pub(crate) wlog: u64,
    #[serde(with = "base64_text")]
    pub(crate) bytes: Bytes,
}

/// A record of a marked event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RecordLine {
    pub(crate) ws: u64,
    pub(crate) id: u64,
    #[serde(with = "base64_text")]
    pub(crate) bytes: Bytes,
}

/// A stored number of the workspace of a marked event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct NumberLine {
    pub(crate) ws: u64,
    pub(crate) sequence: u16,
    pub(crate) last: u64,
}

/// All definitions of a series of document numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SeriesLine {
    pub(crate) id: String,
    pub(crate) stored: StoredDefinitions,
}

/// The name of a counter of a fast series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct CounterName {
    pub(crate) series: String,
    pub(crate) period: String,
    pub(crate) ws: Option<u64>,
}

/// A counter of a fast series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct CounterLine {
    pub(crate) of: CounterName,
    pub(crate) next: u64,
}

/// A range in the ledger of a counter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RangeLine {
    pub(crate) of: CounterName,
    pub(crate) first: u64,
    pub(crate) until: u64,
    /// Whether the owner had not given the range up.
    pub(crate) is_open: bool,
    pub(crate) owner: String,
    pub(crate) reserved_at_ms: u64,
}

/// The end of the stream, and the proof that it is whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct EndLine {
    /// The number of lines before this one.
    pub(crate) lines: u64,
    pub(crate) events: u64,
    /// The checksum of all bytes before this line, in hexadecimal.
    pub(crate) sha256: String,
}

/// Bytes as text: base64 with padding.
mod base64_text {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use bytes::Bytes;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(bytes: &Bytes, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        let text = String::deserialize(from)?;
        Ok(STANDARD.decode(text).map_err(D::Error::custom)?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other programs read these lines. A change of one needs a new format.
    #[test]
    fn every_line_is_pinned() {
        let of = CounterName { series: "order".into(), period: "2026".into(), ws: Some(7) };
        let bytes = Bytes::from_static(b"ab");
        let definition = docnumbers::Definition::new("order", "O{counter:4}");
        let stored =
            StoredDefinitions { policy: docnumbers::Policy::Fast, definitions: vec![definition] };
        let lines = [
            Line::Header(HeaderLine {
                format: 2,
                app: "demo/shop".into(),
                partitions: 10,
                trust_level: 2,
                row_formats: vec![9, 2],
                schema: "x = 1\n".into(),
            }),
            Line::Event(EventLine {
                partition: 1,
                offset: 2,
                ws: 3,
                wlog: 4,
                bytes: bytes.clone(),
            }),
            Line::Fencing(FencingLine { partition: 1, offset: 3, bytes: bytes.clone() }),
            Line::Copy(CopyLine { ws: 3, wlog: 4, bytes: bytes.clone() }),
            Line::Record(RecordLine { ws: 3, id: 5, bytes }),
            Line::Number(NumberLine { ws: 3, sequence: 2, last: 6 }),
            Line::Series(SeriesLine { id: "order".into(), stored }),
            Line::Counter(CounterLine { of: of.clone(), next: 8 }),
            Line::Range(RangeLine {
                of: CounterName { ws: None, ..of },
                first: 1,
                until: 2,
                is_open: true,
                owner: "a".into(),
                reserved_at_ms: 9,
            }),
            Line::End(EndLine { lines: 8, events: 1, sha256: "0f".into() }),
        ];
        let texts = [
            r#"{"header":{"format":2,"app":"demo/shop","partitions":10,"trustLevel":2,"rowFormats":[9,2],"schema":"x = 1\n"}}"#,
            r#"{"event":{"partition":1,"offset":2,"ws":3,"wlog":4,"bytes":"YWI="}}"#,
            r#"{"fencing":{"partition":1,"offset":3,"bytes":"YWI="}}"#,
            r#"{"copy":{"ws":3,"wlog":4,"bytes":"YWI="}}"#,
            r#"{"record":{"ws":3,"id":5,"bytes":"YWI="}}"#,
            r#"{"number":{"ws":3,"sequence":2,"last":6}}"#,
            r#"{"series":{"id":"order","stored":{"policy":"fast","definitions":[{"id":"order","template":"O{counter:4}","reset":"never","zone":"UTC","start":0,"step":1,"overflow":"widen","scope":"workspace","warn_at_percent":90}]}}}"#,
            r#"{"counter":{"of":{"series":"order","period":"2026","ws":7},"next":8}}"#,
            r#"{"range":{"of":{"series":"order","period":"2026","ws":null},"first":1,"until":2,"isOpen":true,"owner":"a","reservedAtMs":9}}"#,
            r#"{"end":{"lines":8,"events":1,"sha256":"0f"}}"#,
        ];
        for (line, text) in lines.into_iter().zip(texts) {
            assert_eq!(serde_json::to_string(&line).unwrap(), text);
            assert_eq!(serde_json::from_str::<Line>(text).unwrap(), line);
        }
    }
}
