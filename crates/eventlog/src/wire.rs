//! The bytes of rows, as `docs/event-format.md` describes them.
//!
//! The types in this module are the format. A change of a field, of the order of fields, or of the
//! order of an enum's values is a new version.

mod encode;
#[cfg(test)]
mod fuzz;

use std::str::FromStr;

use bytes::Bytes;
use clock::WallTime;
pub(crate) use encode::Pages;
use serde::{Deserialize, Serialize};

use crate::{
    DrawnNumber, Entry, Epoch, Event, EventPlace, Idempotency, Marker, Name, Offset, Parent,
    Record, RecordChange, RecordId, StoredAnswer, StoredRecord, TableKind, Value, Version, WsId,
};

/// The first byte of a row. It names the kind of the row and the format of its bytes. A change of a
/// format takes a number that was never used. 3 was a record without its workspace, 4 an answer
/// without its key, and 5 a deployment without the formats.
const EVENT: u8 = 1;
const CORRUPTED: u8 = 2;
const RECORD: u8 = 6;
const ANSWER: u8 = 7;
const DEPLOYMENT: u8 = 8;

/// The formats of all rows of an application. A deployment contains these formats, so that a
/// program with other formats refuses the keyspace. Otherwise that program would take each row for
/// a damaged one.
const FORMATS: [u8; 4] = [EVENT, CORRUPTED, RECORD, ANSWER];

/// The number of bytes of the checksum at the end.
const CHECKSUM: usize = 4;

/// The reason for which bytes cannot be read.
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

impl Entry {
    /// Returns the bytes of the entry. The same entry always has the same bytes.
    pub fn to_bytes(&self) -> Bytes {
        match self {
            Entry::Event(event) => event.to_bytes(),
            Entry::Marker(corrupted) => corrupted.to_bytes(),
        }
    }

    /// Reads an entry.
    ///
    /// # Errors
    /// Fails if the bytes cannot be read.
    pub fn from_bytes(bytes: &[u8]) -> Result<Entry, DecodeError> {
        match checked_body(bytes)? {
            (EVENT, body) => {
                let event = read::<WireEvent<'_>>(body)?.into_event()?;
                Ok(Entry::Event(Box::new(event)))
            }
            (CORRUPTED, body) => {
                let WireCorrupted { place, marked, drawn, bytes } = read(body)?;
                let drawn = drawn.into_iter().map(DrawnNumber::from).collect();
                let (place, marked) = (place.into(), Epoch(marked));
                let bytes = Bytes::copy_from_slice(bytes);
                Ok(Entry::Marker(Marker { place, marked, drawn, bytes }))
            }
            (RECORD | ANSWER | DEPLOYMENT, _) => {
                Err(malformed("the bytes are not an entry of a log"))
            }
            (other, _) => Err(DecodeError::OtherVersion(other)),
        }
    }
}

impl Event {
    /// Returns the bytes of the event.
    pub fn to_bytes(&self) -> Bytes {
        let mut pages = Pages::default();
        pages.event(self);
        pages.into_one()
    }
}

impl Marker {
    /// Returns the bytes of the marker.
    pub fn to_bytes(&self) -> Bytes {
        let drawn = self.drawn.iter().copied().map(WireDrawn::from).collect();
        let (place, marked) = (self.place.into(), self.marked.0);
        write(CORRUPTED, &WireCorrupted { place, marked, drawn, bytes: &self.bytes })
    }
}

impl StoredRecord {
    /// Returns the bytes of the record. The same record always has the same bytes.
    pub fn to_bytes(&self) -> Bytes {
        let mut pages = Pages::default();
        pages.record(self.ws, self.version, &self.record);
        pages.into_one()
    }

    /// Reads a record.
    ///
    /// # Errors
    /// Fails if the bytes cannot be read.
    pub fn from_bytes(bytes: &[u8]) -> Result<StoredRecord, DecodeError> {
        match checked_body(bytes)? {
            (RECORD, body) => {
                let WireStored { ws, version, names, record } = read(body)?;
                let record = record.into_record(&names)?;
                Ok(StoredRecord { ws: WsId(ws), version: version.into(), record })
            }
            (EVENT | CORRUPTED | ANSWER | DEPLOYMENT, _) => {
                Err(malformed("the bytes are not a record"))
            }
            (other, _) => Err(DecodeError::OtherVersion(other)),
        }
    }
}

impl StoredAnswer {
    /// Returns the bytes of the answer.
    pub fn to_bytes(&self) -> Bytes {
        let StoredAnswer { place, key, body, answer } = self;
        write(ANSWER, &WireAnswer { place: (*place).into(), key: *key, body: *body, answer })
    }

    /// Reads an answer.
    ///
    /// # Errors
    /// Fails if the bytes cannot be read.
    pub fn from_bytes(bytes: &[u8]) -> Result<StoredAnswer, DecodeError> {
        match checked_body(bytes)? {
            (ANSWER, body) => {
                let WireAnswer { place, key, body, answer } = read(body)?;
                let answer = Bytes::copy_from_slice(answer);
                Ok(StoredAnswer { place: place.into(), key, body, answer })
            }
            (EVENT | CORRUPTED | RECORD | DEPLOYMENT, _) => {
                Err(malformed("the bytes are not an answer"))
            }
            (other, _) => Err(DecodeError::OtherVersion(other)),
        }
    }
}

/// Returns the bytes of a deployment: the formats of the rows, the trust level, and the tables in
/// TOML.
pub(crate) fn deployment(level: u8, schema: &str) -> Bytes {
    write(DEPLOYMENT, &(&FORMATS[..], level, schema))
}

pub(crate) fn read_deployment(bytes: &[u8]) -> Result<(u8, &str), DecodeError> {
    match checked_body(bytes)? {
        (DEPLOYMENT, body) => {
            let (formats, level, schema): (&[u8], u8, &str) = read(body)?;
            let other = formats.iter().find(|format| !FORMATS.contains(format));
            match other.or_else(|| FORMATS.iter().find(|format| !formats.contains(format))) {
                Some(other) => Err(DecodeError::OtherVersion(*other)),
                None => Ok((level, schema)),
            }
        }
        (EVENT | CORRUPTED | RECORD | ANSWER, _) => {
            Err(malformed("the bytes are not a deployment"))
        }
        (other, _) => Err(DecodeError::OtherVersion(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In an earlier version records and answers got new formats, and the deployment did not
    /// change. The program took each old record and answer for a damaged one.
    #[test]
    fn a_deployment_with_another_format_of_any_row_is_refused() {
        assert_eq!(read_deployment(&deployment(1, "text")), Ok((1, "text")));
        for at in 0..FORMATS.len() {
            let mut formats = FORMATS;
            formats[at] = 200;
            let other = write(DEPLOYMENT, &(&formats[..], 1_u8, "text"));
            assert_eq!(read_deployment(&other), Err(DecodeError::OtherVersion(200)));
            let (before, behind) = (&FORMATS[..at], &FORMATS[at + 1..]);
            let fewer = write(DEPLOYMENT, &(&[before, behind].concat()[..], 1_u8, "text"));
            assert_eq!(read_deployment(&fewer), Err(DecodeError::OtherVersion(FORMATS[at])));
        }
    }
}

/// Returns the first byte and the body, if the checksum is right.
fn checked_body(bytes: &[u8]) -> Result<(u8, &[u8]), DecodeError> {
    let (body, checksum) = bytes.split_last_chunk::<CHECKSUM>().ok_or(DecodeError::Checksum)?;
    if crc32fast::hash(body) != u32::from_be_bytes(*checksum) {
        return Err(DecodeError::Checksum);
    }
    body.split_first().map(|(tag, body)| (*tag, body)).ok_or(DecodeError::Checksum)
}

fn write(tag: u8, body: &impl Serialize) -> Bytes {
    let mut pages = Pages::default();
    pages.write(tag, body);
    pages.into_one()
}

fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, DecodeError> {
    match postcard::take_from_bytes(body) {
        Ok((read, [])) => Ok(read),
        Ok((_, rest)) => Err(malformed(format!("{} bytes follow the value", rest.len()))),
        Err(error) => Err(malformed(error)),
    }
}

#[derive(Serialize, Deserialize)]
struct WirePlace {
    epoch: u64,
    plog: u64,
    ws: u64,
    wlog: u64,
}

#[derive(Serialize, Deserialize)]
struct WireVersion {
    epoch: u64,
    plog: u64,
}

#[derive(Serialize, Deserialize)]
struct WireDrawn {
    seq: u16,
    last: u64,
}

#[derive(Deserialize)]
struct WireEvent<'a> {
    place: WirePlace,
    time: u64,
    request: &'a str,
    #[serde(borrow)]
    idempotency: Option<WireIdempotency<'a>>,
    /// All names of the event, each once, in the order of their first use.
    #[serde(borrow)]
    names: Vec<&'a str>,
    command: u32,
    params: &'a [u8],
    #[serde(borrow)]
    changes: Vec<WireChange<'a>>,
    drawn: Vec<WireDrawn>,
}

#[derive(Serialize, Deserialize)]
struct WireIdempotency<'a> {
    principal: &'a str,
    key: [u8; 32],
    body: [u8; 32],
    answer: &'a [u8],
}

#[derive(Deserialize)]
struct WireChange<'a> {
    replaces: Option<WireVersion>,
    #[serde(borrow)]
    record: WireRecord<'a>,
}

#[derive(Deserialize)]
struct WireStored<'a> {
    ws: u64,
    version: WireVersion,
    #[serde(borrow)]
    names: Vec<&'a str>,
    #[serde(borrow)]
    record: WireRecord<'a>,
}

#[derive(Serialize, Deserialize)]
struct WireAnswer<'a> {
    place: WirePlace,
    key: [u8; 32],
    body: [u8; 32],
    answer: &'a [u8],
}

#[derive(Deserialize)]
struct WireRecord<'a> {
    table: u32,
    kind: TableKind,
    id: u64,
    /// The parent, and the name of the container.
    parent: Option<(u64, u32)>,
    is_active: bool,
    /// The fields, ascending by name.
    #[serde(borrow)]
    fields: Vec<(u32, WireValue<'a>)>,
}

#[derive(Deserialize)]
enum WireValue<'a> {
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
struct WireCorrupted<'a> {
    place: WirePlace,
    marked: u64,
    drawn: Vec<WireDrawn>,
    bytes: &'a [u8],
}

impl WireEvent<'_> {
    fn into_event(self) -> Result<Event, DecodeError> {
        let names = &self.names;
        let change = |WireChange { replaces, record }: WireChange<'_>| {
            let replaces = replaces.map(Version::from);
            Ok(RecordChange { replaces, record: record.into_record(names)? })
        };
        Ok(Event {
            place: self.place.into(),
            time: WallTime::from_nanos(self.time.saturating_mul(1_000)),
            request: self.request.to_owned(),
            idempotency: self.idempotency.map(Idempotency::from),
            command: named(names, self.command)?,
            params: Bytes::copy_from_slice(self.params),
            changes: self.changes.into_iter().map(change).collect::<Result<_, DecodeError>>()?,
            drawn: self.drawn.into_iter().map(DrawnNumber::from).collect(),
        })
    }
}

impl WireRecord<'_> {
    fn into_record(self, names: &[&str]) -> Result<Record, DecodeError> {
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
    fn into_value(self, names: &[&str]) -> Result<Value, DecodeError> {
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

fn named<N: FromStr>(names: &[&str], number: u32) -> Result<N, DecodeError>
where
    N::Err: ToString,
{
    let name = names.get(number as usize);
    let name = name.ok_or_else(|| malformed(format!("there is no name {number}")))?;
    name.parse().map_err(malformed)
}

impl From<EventPlace> for WirePlace {
    fn from(EventPlace { epoch, plog, ws, wlog }: EventPlace) -> WirePlace {
        WirePlace { epoch: epoch.0, plog: plog.0, ws: ws.0, wlog: wlog.0 }
    }
}

impl From<WirePlace> for EventPlace {
    fn from(WirePlace { epoch, plog, ws, wlog }: WirePlace) -> EventPlace {
        EventPlace { epoch: Epoch(epoch), plog: Offset(plog), ws: WsId(ws), wlog: Offset(wlog) }
    }
}

impl From<Version> for WireVersion {
    fn from(Version { epoch, plog }: Version) -> WireVersion {
        WireVersion { epoch: epoch.0, plog: plog.0 }
    }
}

impl From<WireVersion> for Version {
    fn from(WireVersion { epoch, plog }: WireVersion) -> Version {
        Version { epoch: Epoch(epoch), plog: Offset(plog) }
    }
}

impl From<DrawnNumber> for WireDrawn {
    fn from(DrawnNumber { seq, last }: DrawnNumber) -> WireDrawn {
        WireDrawn { seq, last }
    }
}

impl From<WireDrawn> for DrawnNumber {
    fn from(WireDrawn { seq, last }: WireDrawn) -> DrawnNumber {
        DrawnNumber { seq, last }
    }
}

impl<'a> From<&'a Idempotency> for WireIdempotency<'a> {
    fn from(from: &'a Idempotency) -> WireIdempotency<'a> {
        let Idempotency { principal, key, body, answer } = from;
        WireIdempotency { principal, key: *key, body: *body, answer }
    }
}

impl From<WireIdempotency<'_>> for Idempotency {
    fn from(from: WireIdempotency<'_>) -> Idempotency {
        let WireIdempotency { principal, key, body, answer } = from;
        let answer = Bytes::copy_from_slice(answer);
        Idempotency { principal: principal.to_owned(), key, body, answer }
    }
}
