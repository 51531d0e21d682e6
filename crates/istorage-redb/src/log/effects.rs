//! The effects of a group of writes: what a frame of the log holds.
//!
//! An effect is a row as it is after the write, so a replay judges no condition and no time again.
//! Effects are `[u8 kind][u32 length][bytes]`. The effect of a row that is put has a second length
//! with its bytes. The effects after the name of a keyspace are in that keyspace.

use bytes::Bytes;
use istorage::{Error, KeyspaceName, Result};

use super::frame::FrameBytes;
use crate::{layout, mem_table::MemTable, time::Moment};

const KEYSPACE: u8 = 0;
const ROW_PUT: u8 = 1;
const ROW_REMOVED: u8 = 2;
/// Former versions logged the index of the rows that expire. It follows from the rows.
const EXPIRY_PUT: u8 = 3;
const EXPIRY_REMOVED: u8 = 4;
const TIME: u8 = 5;
const FILED: u8 = 6;

/// What a frame says besides its rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FrameNotes {
    /// The time of the file.
    pub(crate) time: Option<Moment>,
    /// The segment before which the storage file had all rows when the frame was written.
    pub(crate) filed: Option<u64>,
}

/// The effects of some rows, as a frame.
pub(crate) fn encode(rows: &MemTable, time: Moment, filed: u64) -> FrameBytes {
    let mut frame = FrameBytes::with_capacity(rows.weight());
    add(&mut frame, TIME, &[&layout::encode_time(time)]);
    add(&mut frame, FILED, &[&filed.to_be_bytes()]);
    for (keyspace, rows) in rows.keyspaces() {
        add(&mut frame, KEYSPACE, &[keyspace.as_str().as_bytes()]);
        for (key, row) in rows {
            match row {
                Some(row) => add(&mut frame, ROW_PUT, &[key, row]),
                None => add(&mut frame, ROW_REMOVED, &[key]),
            }
        }
    }
    frame
}

fn add(frame: &mut FrameBytes, kind: u8, parts: &[&[u8]]) {
    frame.extend(&[kind]);
    for part in parts {
        // A part is at most as long as a request may be.
        let len = u32::try_from(part.len()).unwrap_or(u32::MAX);
        frame.extend(&len.to_be_bytes());
        frame.extend(part);
    }
}

/// Adds the rows of a frame to a table. Fails with `Corrupt` if the bytes are not effects.
pub(super) fn decode(effects: &[u8], rows: &mut MemTable) -> Result<FrameNotes> {
    let (mut rest, mut keyspace, mut notes) = (effects, None, FrameNotes::default());
    while let Some((&kind, behind)) = rest.split_first() {
        rest = behind;
        let first = take(&mut rest)?;
        match kind {
            KEYSPACE => {
                let name = std::str::from_utf8(first).map_err(|_| unknown())?;
                keyspace = Some(KeyspaceName::new(name).map_err(|_| unknown())?);
            }
            TIME => notes.time = Some(layout::parse_time(first).ok_or_else(unknown)?),
            FILED => {
                let segment = first.try_into().map_err(|_| unknown())?;
                notes.filed = Some(u64::from_be_bytes(segment));
            }
            ROW_PUT | ROW_REMOVED => {
                let keyspace = keyspace.as_ref().ok_or_else(unknown)?;
                let row = match kind {
                    ROW_PUT => Some(Bytes::copy_from_slice(take(&mut rest)?)),
                    _ => None,
                };
                rows.set(keyspace, Bytes::copy_from_slice(first), row);
            }
            EXPIRY_PUT | EXPIRY_REMOVED => {}
            _ => return Err(unknown()),
        }
    }
    Ok(notes)
}

/// Takes a length and as many bytes.
fn take<'b>(rest: &mut &'b [u8]) -> Result<&'b [u8]> {
    let (len, behind) = rest.split_first_chunk().ok_or_else(unknown)?;
    let len = u32::from_be_bytes(*len) as usize;
    let (part, behind) = behind.split_at_checked(len).ok_or_else(unknown)?;
    *rest = behind;
    Ok(part)
}

fn unknown() -> Error {
    Error::corrupt("a frame of the log holds something else than effects")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The payload of a frame.
    fn payload(frame: FrameBytes) -> Vec<u8> {
        let last = super::super::LogPosition::new(1);
        let (_, bytes) = frame.finish(&last);
        let frame = super::super::frame::parse(&bytes, 0, 1).unwrap();
        bytes[frame.payload].to_vec()
    }

    fn rows() -> MemTable {
        let mut rows = MemTable::default();
        for (keyspace, key, row) in
            [("one", "k", Some("row")), ("one", "l", None), ("two", "k", Some(""))]
        {
            let keyspace = KeyspaceName::new(keyspace).unwrap();
            rows.set(&keyspace, Bytes::from(key), row.map(Bytes::from));
        }
        rows
    }

    fn listed(rows: &MemTable) -> Vec<String> {
        rows.keyspaces().map(|(name, rows)| format!("{name} {rows:?}")).collect()
    }

    #[test]
    fn effects_are_read_as_they_were_written() {
        let bytes = payload(encode(&rows(), Moment(5), 9));
        let mut read = MemTable::default();
        let notes = decode(&bytes, &mut read).unwrap();
        assert_eq!(notes, FrameNotes { time: Some(Moment(5)), filed: Some(9) });
        assert_eq!(listed(&read), listed(&rows()));
        assert_eq!(decode(&[], &mut read).unwrap(), FrameNotes::default(), "a header");
    }

    #[test]
    fn effects_that_are_cut_off_or_unknown_are_corrupt() {
        let bytes = payload(encode(&rows(), Moment(5), 9));
        let mut cut_off = 0;
        for len in 1..bytes.len() {
            // Between two effects a cut is not noticed: the checksum of the frame notices it.
            cut_off += usize::from(decode(&bytes[..len], &mut MemTable::default()).is_err());
        }
        assert!(cut_off > bytes.len() * 3 / 4);
        assert!(decode(&[9, 0, 0, 0, 0], &mut MemTable::default()).is_err());
        // A row without a keyspace.
        assert!(decode(&[ROW_REMOVED, 0, 0, 0, 0], &mut MemTable::default()).is_err());
    }

    /// A log of the format before has the entries of an index, too.
    #[test]
    fn entries_of_an_index_are_left_out() {
        let mut bytes = FrameBytes::with_capacity(0);
        add(&mut bytes, KEYSPACE, &[b"one"]);
        for kind in [EXPIRY_REMOVED, EXPIRY_PUT] {
            add(&mut bytes, kind, &[b"entry"]);
        }
        add(&mut bytes, ROW_REMOVED, &[b"k"]);
        let mut read = MemTable::default();
        decode(&payload(bytes), &mut read).unwrap();
        assert_eq!(listed(&read), ["one {b\"k\": None}"]);
    }
}
