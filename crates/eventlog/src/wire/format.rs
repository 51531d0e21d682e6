//! The types of the bytes of rows. These types are the format, and so are `EventPlace`, `Version`,
//! `DrawnNumber` and `TableKind`. A change of a field, of the order of fields, or of the order of
//! an enum's values is a new version.

use std::str::FromStr;

use bytes::Bytes;
use clock::WallTime;
use serde::{Deserialize, Serialize};

use crate::{
    DrawnNumber, Epoch, Event, EventPlace, FencingEntry, Idempotency, Name, Offset, Parent, Record,
    RecordChange, RecordId, TableKind, Value, Version, WsId,
};

/// The first byte of a row. It names the kind of the row and the format of its bytes. A change of a
/// format takes a number that was never used. 1 was an event without its principal, 3 was a record
/// without its workspace, 4 an answer without its key, 5 a deployment without the formats, and 8
/// one without a change of the level.
pub(super) const EVENT: u8 = 9;
pub(super) const CORRUPTED: u8 = 2;
pub(super) const RECORD: u8 = 6;
pub(super) const ANSWER: u8 = 7;
pub(super) const DEPLOYMENT: u8 = 10;
pub(super) const FENCING: u8 = 11;

/// The formats of all rows of an application. A deployment contains these formats, so that a
/// program with other formats refuses the keyspace. Otherwise that program would take each row for
/// a damaged one.
pub(super) const FORMATS: [u8; 5] = [EVENT, CORRUPTED, RECORD, ANSWER, FENCING];

/// The number of bytes of the checksum at the end.
pub(super) const CHECKSUM: usize = 4;

/// Why bytes cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes are damaged, or were never an entry of a log.
    #[error("the checksum is wrong: the bytes are damaged, or were never an entry of a log")]
    Checksum,
    /// Another version of the program wrote the bytes, and can read them.
    #[error(
        "the first byte is {0}, which this program does not know: another version of the program wrote the bytes"
    )]
    OtherVersion(u8),
    /// The checksum is right, but the content is not valid.
    #[error("the checksum is right, but the content is not valid: {0}")]
    Malformed(String),
}

pub(crate) fn malformed(what: impl ToString) -> DecodeError {
    DecodeError::Malformed(what.to_string())
}

#[derive(Deserialize)]
pub(super) struct WireEvent<'a> {
    pub(super) place: EventPlace,
    pub(super) time: u64,
    pub(super) request: &'a str,
    pub(super) principal: &'a str,
    #[serde(borrow)]
    pub(super) idempotency: Option<WireIdempotency<'a>>,
    /// All names of the event, each once, in the order of their first use.
    #[serde(borrow)]
    pub(super) names: Vec<&'a str>,
    pub(super) command: u32,
    pub(super) params: &'a [u8],
    #[serde(borrow)]
    pub(super) changes: Vec<WireChange<'a>>,
    pub(super) drawn: Vec<DrawnNumber>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct WireIdempotency<'a> {
    pub(super) key: [u8; 32],
    pub(super) body: [u8; 32],
    pub(super) answer: &'a [u8],
}

#[derive(Deserialize)]
pub(super) struct WireChange<'a> {
    pub(super) replaces: Option<Version>,
    #[serde(borrow)]
    pub(super) record: WireRecord<'a>,
}

#[derive(Deserialize)]
pub(super) struct WireStored<'a> {
    pub(super) ws: WsId,
    pub(super) version: Version,
    #[serde(borrow)]
    pub(super) names: Vec<&'a str>,
    #[serde(borrow)]
    pub(super) record: WireRecord<'a>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct WireAnswer<'a> {
    pub(super) place: EventPlace,
    pub(super) key: [u8; 32],
    pub(super) body: [u8; 32],
    pub(super) answer: &'a [u8],
}

#[derive(Deserialize)]
pub(super) struct WireRecord<'a> {
    pub(super) table: u32,
    pub(super) kind: TableKind,
    pub(super) id: u64,
    /// The parent, and the name of the container.
    pub(super) parent: Option<(u64, u32)>,
    pub(super) is_active: bool,
    /// The fields, ascending by name.
    #[serde(borrow)]
    pub(super) fields: Vec<(u32, WireValue<'a>)>,
}

#[derive(Deserialize)]
pub(super) enum WireValue<'a> {
    Bool(bool),
    Int32(i32),
    Int64(i64),
    Float32(f32),
    Float64(f64),
    String(&'a str),
    Bytes(&'a [u8]),
    QName(u32),
    Ref(u64),
}

#[derive(Serialize, Deserialize)]
pub(super) struct WireCorrupted<'a> {
    pub(super) place: EventPlace,
    pub(super) marked: Epoch,
    pub(super) drawn: Vec<DrawnNumber>,
    pub(super) bytes: &'a [u8],
}

#[derive(Serialize, Deserialize)]
pub(super) struct WireFencing {
    pub(super) epoch: u64,
    pub(super) partition: u16,
    pub(super) plog: u64,
    pub(super) time: u64,
}

impl WireEvent<'_> {
    pub(super) fn into_event(self) -> Result<Event, DecodeError> {
        let names = &self.names;
        let change = |WireChange { replaces, record }: WireChange<'_>| {
            Ok(RecordChange { replaces, record: record.into_record(names)? })
        };
        Ok(Event {
            place: self.place,
            time: WallTime::from_nanos(self.time.saturating_mul(1_000)),
            request: self.request.to_owned(),
            principal: self.principal.to_owned(),
            idempotency: self.idempotency.map(Idempotency::from),
            command: named(names, self.command)?,
            params: Bytes::copy_from_slice(self.params),
            changes: self.changes.into_iter().map(change).collect::<Result<_, DecodeError>>()?,
            drawn: self.drawn,
        })
    }
}

impl WireRecord<'_> {
    pub(super) fn into_record(self, names: &[&str]) -> Result<Record, DecodeError> {
        let parent = match self.parent {
            Some((id, container)) => {
                Some(Parent { id: RecordId(id), container: named(names, container)? })
            }
            None => None,
        };
        let mut fields: Vec<(Name, Value)> = Vec::with_capacity(self.fields.len());
        for (name, value) in self.fields {
            let name: Name = named(names, name)?;
            if fields.last().is_some_and(|(before, _)| *before >= name) {
                return Err(malformed(format!("the field `{name}` is out of order")));
            }
            fields.push((name, value.into_value(names)?));
        }
        Ok(Record {
            table: named(names, self.table)?,
            kind: self.kind,
            id: RecordId(self.id),
            parent,
            is_active: self.is_active,
            fields: fields.into_iter().collect(),
        })
    }
}

impl WireValue<'_> {
    pub(super) fn into_value(self, names: &[&str]) -> Result<Value, DecodeError> {
        Ok(match self {
            WireValue::Bool(value) => Value::Bool(value),
            WireValue::Int32(value) => Value::Int32(value),
            WireValue::Int64(value) => Value::Int64(value),
            WireValue::Float32(value) => Value::Float32(value),
            WireValue::Float64(value) => Value::Float64(value),
            WireValue::String(value) => Value::String(value.to_owned()),
            WireValue::Bytes(value) => Value::Bytes(Bytes::copy_from_slice(value)),
            WireValue::QName(value) => Value::QName(named(names, value)?),
            WireValue::Ref(value) => Value::Ref(RecordId(value)),
        })
    }
}

pub(super) fn named<N: FromStr>(names: &[&str], number: u32) -> Result<N, DecodeError>
where
    N::Err: ToString,
{
    let name = names.get(number as usize);
    let name = name.ok_or_else(|| malformed(format!("there is no name {number}")))?;
    name.parse().map_err(malformed)
}

impl From<FencingEntry> for WireFencing {
    fn from(FencingEntry { epoch, partition, plog, time }: FencingEntry) -> WireFencing {
        WireFencing { epoch: epoch.0, partition, plog: plog.0, time: time.as_micros() }
    }
}

impl From<WireFencing> for FencingEntry {
    fn from(WireFencing { epoch, partition, plog, time }: WireFencing) -> FencingEntry {
        let time = WallTime::from_nanos(time.saturating_mul(1_000));
        FencingEntry { epoch: Epoch(epoch), partition, plog: Offset(plog), time }
    }
}

impl<'a> From<&'a Idempotency> for WireIdempotency<'a> {
    fn from(from: &'a Idempotency) -> WireIdempotency<'a> {
        let Idempotency { key, body, answer } = from;
        WireIdempotency { key: *key, body: *body, answer }
    }
}

impl From<WireIdempotency<'_>> for Idempotency {
    fn from(from: WireIdempotency<'_>) -> Idempotency {
        let WireIdempotency { key, body, answer } = from;
        Idempotency { key, body, answer: Bytes::copy_from_slice(answer) }
    }
}
