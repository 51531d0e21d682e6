//! The writing of rows: the fields in the order in which they are read, without an intermediate
//! copy.

use std::collections::HashMap;

use bytes::Bytes;
use serde::{Serialize, Serializer, ser::SerializeTuple};
use smallvec::SmallVec;

use super::format::{CHECKSUM, EVENT, RECORD, WireIdempotency};
use crate::{Event, Fields, Name, Record, RecordChange, Value, Version, WsId};

/// The bytes of several values, one after another in one piece of memory.
#[derive(Default)]
pub(crate) struct Pages {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Pages {
    pub(crate) fn with_capacity(bytes: usize, things: usize) -> Pages {
        Pages { bytes: Vec::with_capacity(bytes), ends: Vec::with_capacity(things) }
    }

    pub(super) fn write(&mut self, tag: u8, body: &impl Serialize) {
        let start = self.bytes.len();
        self.bytes.push(tag);
        let written = postcard::serialize_with_flavor(body, Append(&mut self.bytes));
        let () = written.expect("memory takes all that is written, and all lengths are known");
        let checksum: [u8; CHECKSUM] = crc32fast::hash(&self.bytes[start..]).to_be_bytes();
        self.bytes.extend_from_slice(&checksum);
        self.ends.push(self.bytes.len());
    }

    /// Writes a record in its state after an event.
    pub(crate) fn record(&mut self, ws: WsId, version: Version, record: &Record) {
        let mut names = NameTable::default();
        names.of_record(record);
        let body = (ws, version, &names.names[..], Encoded(record, &names));
        self.write(RECORD, &body);
    }

    pub(crate) fn event(&mut self, event: &Event) {
        let mut names = NameTable::default();
        names.add(event.command.as_str());
        event.changes.iter().for_each(|change| names.of_record(&change.record));
        self.write(EVENT, &Encoded(event, &names));
    }

    /// Returns the bytes of the only value.
    pub(super) fn into_one(self) -> Bytes {
        self.bytes.into()
    }

    /// Returns the bytes of each value, in order.
    pub(crate) fn into_parts(self) -> impl Iterator<Item = Bytes> {
        // The exact size, because the bytes may be kept for long.
        let bytes = Bytes::copy_from_slice(&self.bytes);
        let mut start = 0;
        self.ends.into_iter().map(move |end| bytes.slice(std::mem::replace(&mut start, end)..end))
    }
}

/// Appends bytes after the existing ones.
struct Append<'b>(&'b mut Vec<u8>);

impl postcard::ser_flavors::Flavor for Append<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// All names of an event, each once, in the order of their first use.
#[derive(Default)]
struct NameTable<'a> {
    names: SmallVec<[&'a str; FEW_NAMES]>,
    /// The indexes of the names after the first few.
    numbers: HashMap<&'a str, u32>,
}

/// The number of names that are searched one by one. So few names are found faster in this way, and
/// need no memory for an index.
const FEW_NAMES: usize = 16;

impl<'a> NameTable<'a> {
    fn find(&self, name: &str) -> Option<u32> {
        let among_first = self.names.iter().take(FEW_NAMES).position(|known| *known == name);
        among_first.map(|number| number as u32).or_else(|| self.numbers.get(name).copied())
    }

    fn add(&mut self, name: &'a str) {
        if self.find(name).is_none() {
            if self.names.len() >= FEW_NAMES {
                self.numbers.insert(name, self.names.len() as u32);
            }
            self.names.push(name);
        }
    }

    fn of_record(&mut self, record: &'a Record) {
        self.add(record.table.as_str());
        if let Some(parent) = &record.parent {
            self.add(parent.container.as_str());
        }
        for (name, value) in record.fields.iter() {
            self.add(name.as_str());
            if let Value::QName(value) = value {
                self.add(value.as_str());
            }
        }
    }

    fn number(&self, name: &str) -> u32 {
        self.find(name).expect("all names are added before any is written")
    }
}

/// A value, with the names that its bytes refer to.
struct Encoded<'o, 'n, T>(&'o T, &'o NameTable<'n>);

/// Bytes that are written at once, and not one by one.
struct RawBytes<'a>(&'a [u8]);

impl Serialize for RawBytes<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(self.0)
    }
}

impl Serialize for Encoded<'_, '_, Event> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Encoded(event, names) = self;
        let mut to = to.serialize_tuple(10)?;
        to.serialize_element(&event.place)?;
        to.serialize_element(&event.time.as_micros())?;
        to.serialize_element(&event.request)?;
        to.serialize_element(&event.principal)?;
        to.serialize_element(&event.idempotency.as_ref().map(WireIdempotency::from))?;
        to.serialize_element(&names.names[..])?;
        to.serialize_element(&names.number(event.command.as_str()))?;
        to.serialize_element(&RawBytes(&event.params))?;
        to.serialize_element(&Encoded(&event.changes, names))?;
        to.serialize_element(&event.drawn)?;
        to.end()
    }
}

impl Serialize for Encoded<'_, '_, Vec<RecordChange>> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Encoded(changes, names) = self;
        to.collect_seq(
            changes
                .iter()
                .map(|RecordChange { replaces, record }| (replaces, Encoded(record, names))),
        )
    }
}

impl Serialize for Encoded<'_, '_, Record> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Encoded(Record { table, kind, id, parent, is_active, fields }, names) = self;
        let mut to = to.serialize_tuple(6)?;
        to.serialize_element(&names.number(table.as_str()))?;
        to.serialize_element(kind)?;
        to.serialize_element(&id.0)?;
        let parent = parent.as_ref();
        let parent = parent.map(|parent| (parent.id.0, names.number(parent.container.as_str())));
        to.serialize_element(&parent)?;
        to.serialize_element(is_active)?;
        to.serialize_element(&Encoded(fields, names))?;
        to.end()
    }
}

impl Serialize for Encoded<'_, '_, Fields> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Encoded(fields, names) = self;
        let field =
            |(name, value): (&Name, _)| (names.number(name.as_str()), Encoded(value, names));
        to.collect_seq(fields.iter().map(field))
    }
}

/// The order of the variants is the order in [`WireValue`](super::format::WireValue).
impl Serialize for Encoded<'_, '_, Value> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        const NAME: &str = "Value";
        match self.0 {
            Value::Bool(value) => to.serialize_newtype_variant(NAME, 0, "Bool", value),
            Value::Int32(value) => to.serialize_newtype_variant(NAME, 1, "Int32", value),
            Value::Int64(value) => to.serialize_newtype_variant(NAME, 2, "Int64", value),
            Value::Float32(value) => to.serialize_newtype_variant(NAME, 3, "Float32", value),
            Value::Float64(value) => to.serialize_newtype_variant(NAME, 4, "Float64", value),
            Value::String(value) => to.serialize_newtype_variant(NAME, 5, "String", value),
            Value::Bytes(value) => to.serialize_newtype_variant(NAME, 6, "Bytes", &RawBytes(value)),
            Value::QName(value) => {
                let number = self.1.number(value.as_str());
                to.serialize_newtype_variant(NAME, 7, "QName", &number)
            }
            Value::Ref(value) => to.serialize_newtype_variant(NAME, 8, "Ref", &value.0),
        }
    }
}
