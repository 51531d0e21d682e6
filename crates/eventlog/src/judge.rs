//! What it means that a row is not as it was expected: decisions about bytes, without I/O.

use bytes::Bytes;

use crate::{
    Entry, Epoch, Offset, Row, StoredRecord, Violation,
    plan::{How, RowWrite, What},
};

fn violation(write: &RowWrite, there: Option<&Bytes>, why: &'static str) -> Violation {
    Violation { row: write.row, there: there.cloned(), wanted: write.after.clone(), why }
}

/// What stands where an event was to be written in the log of its partition. It is none of ours.
pub(crate) enum InPlog {
    /// An event of a later leader.
    Later(Epoch),
    /// An event of an earlier one.
    Earlier(Offset),
    /// Nothing that a leader before this one wrote.
    Wrong(Violation),
}

pub(crate) fn in_plog(write: &RowWrite, epoch: Epoch, there: Option<&Bytes>) -> InPlog {
    let place = there.and_then(|bytes| Entry::from_bytes(bytes).ok()).map(|entry| entry.place());
    match (write.row, place) {
        (_, Some(place)) if place.epoch > epoch => InPlog::Later(place.epoch),
        (Row::Plog(_, offset), Some(place)) if place.plog == offset && place.epoch < epoch => {
            InPlog::Earlier(offset)
        }
        _ => InPlog::Wrong(violation(write, there, "holds what no leader before this one wrote")),
    }
}

/// What stands in the way of what an event that is in the log of its partition says: `None` if that is done already, else how the row is to
/// be written.
pub(crate) fn applied(write: &RowWrite, there: Option<&Bytes>) -> Result<Option<How>, Violation> {
    let Some(bytes) = there else { return Ok(Some(How::If(None))) };
    if *bytes == write.after {
        return Ok(None);
    }
    let wrong = |why| Err(violation(write, there, why));
    match write.what {
        What::Marker => match (write.row, Entry::from_bytes(bytes)) {
            // What cannot be read in one log may be whole in the other.
            (Row::Wlog(ws, wlog), Ok(entry))
                if entry.place().ws == ws && entry.place().wlog == wlog =>
            {
                Ok(None)
            }
            _ => wrong("holds another event"),
        },
        What::Record { replaces, first, last } => {
            let Ok(stored) = StoredRecord::from_bytes(bytes) else {
                return wrong("holds what is no record");
            };
            let version = stored.version;
            let is_expected = replaces == Some(version) || version >= first;
            if version > last {
                Ok(None)
            } else if version == last {
                // The bytes of a record may depend on the program that wrote it.
                match StoredRecord::from_bytes(&write.after) {
                    Ok(wanted) if wanted == stored => Ok(None),
                    _ => wrong("holds another record of the same event"),
                }
            } else if is_expected {
                Ok(Some(How::If(Some(bytes.clone()))))
            } else if replaces.is_none() {
                wrong("is there already")
            } else {
                wrong("is not what was read")
            }
        }
        What::Entry | What::Answer => wrong("holds another event"),
    }
}
