//! The bytes of rows, as `docs/event-format.md` describes them.

mod encode;
mod format;
#[cfg(test)]
mod fuzz;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use self::format::DecodeError;
use self::format::{
    ANSWER, CHECKSUM, CORRUPTED, DEPLOYMENT, EVENT, FENCING, FORMATS, RECORD, WireAnswer,
    WireCorrupted, WireEvent, WireFencing, WireStored,
};
pub(crate) use self::{encode::Pages, format::malformed};
use crate::{Entry, Event, EventPlace, FencingEntry, Marker, StoredAnswer, StoredRecord};

impl Entry {
    /// Returns the bytes of the entry. The same entry always has the same bytes.
    pub fn to_bytes(&self) -> Bytes {
        match self {
            Entry::Event(event) => event.to_bytes(),
            Entry::Marker(corrupted) => corrupted.to_bytes(),
            Entry::Fencing(fencing) => fencing.to_bytes(),
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
                let bytes = Bytes::copy_from_slice(bytes);
                Ok(Entry::Marker(Marker { place, marked, drawn, bytes }))
            }
            (FENCING, body) => Ok(Entry::Fencing(read::<WireFencing>(body)?.into())),
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
        let Marker { place, marked, drawn, bytes } = self.clone();
        write(CORRUPTED, &WireCorrupted { place, marked, drawn, bytes: &bytes })
    }
}

impl FencingEntry {
    /// Returns the bytes of the entry.
    pub fn to_bytes(&self) -> Bytes {
        write(FENCING, &WireFencing::from(*self))
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
                Ok(StoredRecord { ws, version, record })
            }
            (EVENT | CORRUPTED | ANSWER | DEPLOYMENT | FENCING, _) => {
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
        write(ANSWER, &WireAnswer { place: *place, key: *key, body: *body, answer })
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
                Ok(StoredAnswer { place, key, body, answer })
            }
            (EVENT | CORRUPTED | RECORD | DEPLOYMENT | FENCING, _) => {
                Err(malformed("the bytes are not an answer"))
            }
            (other, _) => Err(DecodeError::OtherVersion(other)),
        }
    }
}

/// Returns the formats of all rows of an application, which are the first bytes of the rows. A
/// program reads only rows of its own formats.
pub fn row_formats() -> &'static [u8] {
    &FORMATS
}

/// The trust level of a deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct DeployedLevel {
    pub(crate) level: u8,
    pub(crate) stray_before: u64,
    /// The target level of a change that has begun, and the number of the attempt.
    pub(crate) change: Option<(u8, u64)>,
}

/// Returns the bytes of a deployment: the formats of the rows, the trust level, and the tables in
/// TOML.
pub(crate) fn deployment(level: DeployedLevel, schema: &str) -> Bytes {
    write(DEPLOYMENT, &(&FORMATS[..], level, schema))
}

pub(crate) fn read_deployment(bytes: &[u8]) -> Result<(DeployedLevel, &str), DecodeError> {
    match checked_body(bytes)? {
        (DEPLOYMENT, body) => {
            let (formats, level, schema): (&[u8], DeployedLevel, &str) = read(body)?;
            let other = formats.iter().find(|format| !FORMATS.contains(format));
            match other.or_else(|| FORMATS.iter().find(|format| !formats.contains(format))) {
                Some(other) => Err(DecodeError::OtherVersion(*other)),
                None => Ok((level, schema)),
            }
        }
        (EVENT | CORRUPTED | RECORD | ANSWER | FENCING, _) => {
            Err(malformed("the bytes are not a deployment"))
        }
        (other, _) => Err(DecodeError::OtherVersion(other)),
    }
}

/// Returns the place that the bytes of a damaged event still name. The checksum is wrong, so the
/// place is only a hint.
pub(crate) fn place_in_damaged(bytes: &[u8]) -> Option<EventPlace> {
    let (tag, body) = bytes.split_first()?;
    let (place, _) = postcard::take_from_bytes::<EventPlace>(body).ok()?;
    (*tag == EVENT).then_some(place)
}

/// Returns the fencing entry that the bytes of a damaged entry still name. The checksum is wrong,
/// so the entry is only a hint.
pub(crate) fn fencing_in_damaged(bytes: &[u8]) -> Option<FencingEntry> {
    let (tag, body) = bytes.split_first()?;
    let (fencing, _) = postcard::take_from_bytes::<WireFencing>(body).ok()?;
    (*tag == FENCING).then(|| fencing.into())
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

#[cfg(test)]
mod tests {
    use super::*;

    /// In an earlier version records and answers got new formats, and the deployment did not
    /// change. The program took each old record and answer for a damaged one.
    #[test]
    fn a_deployment_with_another_format_of_any_row_is_refused() {
        let level = DeployedLevel { level: 1, stray_before: 7, change: None };
        assert_eq!(read_deployment(&deployment(level, "text")), Ok((level, "text")));
        for at in 0..FORMATS.len() {
            let mut formats = FORMATS;
            formats[at] = 200;
            let other = write(DEPLOYMENT, &(&formats[..], level, "text"));
            assert_eq!(read_deployment(&other), Err(DecodeError::OtherVersion(200)));
            let (before, behind) = (&FORMATS[..at], &FORMATS[at + 1..]);
            let fewer = write(DEPLOYMENT, &(&[before, behind].concat()[..], level, "text"));
            assert_eq!(read_deployment(&fewer), Err(DecodeError::OtherVersion(FORMATS[at])));
        }
    }
}
