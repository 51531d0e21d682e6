//! The rows of an application's keyspace, by their meaning, and the rows that cannot be read.

use std::{fmt, num::NonZeroU16};

use bytes::BytesMut;
use istorage::Key;

use crate::{
    DecodeError, Entry, Offset, RecordId, StoredAnswer, StoredRecord, Version, WsId,
    layout::{self, NEIGHBOURS, Prefix},
};

/// The size of the longest key, in bytes.
pub(crate) const LONGEST_KEY: usize = 42;

/// A row of an application's keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AppRow {
    /// An event in the log of a partition.
    Plog(u16, Offset),
    /// An event in the log of a workspace.
    Wlog(WsId, Offset),
    /// A record.
    Record(WsId, RecordId),
    /// The stored answer to a command, by the hash of its idempotency key.
    Answer(WsId, [u8; 32]),
}

impl AppRow {
    /// Returns the key of the row.
    pub fn key(&self) -> Key {
        self.key_in(&mut BytesMut::with_capacity(LONGEST_KEY))
    }

    /// Returns the key of the row, in memory that is shared with other keys.
    pub(crate) fn key_in(&self, buffer: &mut BytesMut) -> Key {
        match self {
            AppRow::Plog(partition, offset) => layout::plog(buffer, *partition, *offset),
            AppRow::Wlog(ws, offset) => layout::wlog(buffer, *ws, *offset),
            AppRow::Record(ws, id) => layout::record(buffer, *ws, *id),
            AppRow::Answer(ws, hash) => layout::answer(buffer, *ws, hash),
        }
    }

    /// Returns the row with a key; `None` if the key is that of another kind of row.
    pub fn of_key(key: &Key) -> Option<AppRow> {
        row_of(key).filter(|row| row.key() == *key)
    }

    /// Reads the entry of a log in this row.
    ///
    /// # Errors
    /// Fails with [`DamagedRow::Unreadable`], and with [`DamagedRow::Misplaced`] if the bytes
    /// belong to another row.
    pub fn entry(self, bytes: &[u8], partitions: NonZeroU16) -> Result<Entry, DamagedRow> {
        self.check_row(Entry::from_bytes(bytes), |entry| match (self, entry.place()) {
            (AppRow::Wlog(..), Some(place)) => AppRow::Wlog(place.ws, place.wlog),
            _ => AppRow::Plog(entry.partition(partitions), entry.plog()),
        })
    }

    /// Reads the record in this row.
    ///
    /// # Errors
    /// Fails with [`DamagedRow::Unreadable`], and with [`DamagedRow::Misplaced`] if the bytes
    /// belong to another row.
    pub fn record(self, bytes: &[u8]) -> Result<StoredRecord, DamagedRow> {
        let named_row = |stored: &StoredRecord| AppRow::Record(stored.ws, stored.record.id);
        self.check_row(StoredRecord::from_bytes(bytes), named_row)
    }

    /// Reads the answer in this row.
    ///
    /// # Errors
    /// Fails with [`DamagedRow::Unreadable`], and with [`DamagedRow::Misplaced`] if the bytes
    /// belong to another row.
    pub fn answer(self, bytes: &[u8]) -> Result<StoredAnswer, DamagedRow> {
        let named_row = |stored: &StoredAnswer| AppRow::Answer(stored.place.ws, stored.key);
        self.check_row(StoredAnswer::from_bytes(bytes), named_row)
    }

    /// Returns the value that was read, if the value names this row as its row.
    fn check_row<T>(
        self,
        read: Result<T, DecodeError>,
        named_row: impl Fn(&T) -> AppRow,
    ) -> Result<T, DamagedRow> {
        let read = read.map_err(|why| DamagedRow::Unreadable { row: self, why })?;
        let named = named_row(&read);
        if named == self { Ok(read) } else { Err(DamagedRow::Misplaced { row: self, named }) }
    }
}

/// The text contains the key, so that an operator can find the row.
impl fmt::Display for AppRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AppRow::Plog(partition, offset) => {
                write!(f, "event {} of the log of partition {partition}", offset.0)?;
            }
            AppRow::Wlog(ws, offset) => {
                write!(f, "event {} of the log of workspace {}", offset.0, ws.0)?;
            }
            AppRow::Record(ws, id) => write!(f, "record {} of workspace {}", id.0, ws.0)?,
            AppRow::Answer(ws, _) => write!(f, "an answer to a command of workspace {}", ws.0)?,
        }
        let Key { pkey, ccols } = self.key();
        write!(f, " (key {pkey:x}/{ccols:x})")
    }
}

/// A log or a row that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DamagedRow {
    /// The bytes of a row cannot be read. If an event cannot be restored, mark it as corrupted.
    #[error("{row} cannot be read")]
    Unreadable {
        /// The row.
        row: AppRow,
        /// The problem of the bytes.
        #[source]
        why: DecodeError,
    },
    /// The row holds the bytes of another row.
    #[error("{row} holds the bytes of {named}")]
    Misplaced {
        /// The row.
        row: AppRow,
        /// The row that the bytes name as their row.
        named: AppRow,
    },
    /// An event is missing, but the log is known to reach at least its offset.
    #[error("{0} is missing, but the log is known to reach at least that offset")]
    Missing(AppRow),
    /// A row names the event that wrote it, and that event is not in the log.
    #[error("{row} names event {} as its writer, but the log ends before that event", .plog.0)]
    EventNotInLog {
        /// The row.
        row: AppRow,
        /// The event that the row names.
        plog: Offset,
    },
    /// Take no commands until the record is whole again: it is missing, or older than the version
    /// that the storage has acknowledged.
    #[error("{row} is older than the version of event {}, which the storage has acknowledged: the storage has lost a write, or another program has changed the row", .version.plog.0)]
    Outdated {
        /// The row.
        row: AppRow,
        /// The version that the storage has acknowledged.
        version: Version,
    },
    /// The epoch of an event is lower than the epoch of the event before it: its leader had already
    /// lost the leadership.
    #[error("{row} has the epoch {epoch}, but the event before it has the later epoch {before}")]
    EpochFell {
        /// The event.
        row: AppRow,
        /// The epoch of the event.
        epoch: u64,
        /// The epoch of the event before it.
        before: u64,
    },
}

impl DamagedRow {
    /// Returns the damaged row.
    pub fn row(&self) -> AppRow {
        match self {
            DamagedRow::Missing(row)
            | DamagedRow::Unreadable { row, .. }
            | DamagedRow::Misplaced { row, .. }
            | DamagedRow::EventNotInLog { row, .. }
            | DamagedRow::Outdated { row, .. }
            | DamagedRow::EpochFell { row, .. } => *row,
        }
    }
}

/// Returns the row of a key that has the lengths of its kind; `None` for other kinds of rows.
fn row_of(key: &Key) -> Option<AppRow> {
    let (prefix, rest) = key.pkey.split_first_chunk::<2>()?;
    let prefix = u16::from_be_bytes(*prefix);
    if prefix == Prefix::Plog as u16 {
        let (partition, high) = rest.split_first_chunk::<2>()?;
        let offset = Offset(neighbour(high, &key.ccols)?);
        return Some(AppRow::Plog(u16::from_be_bytes(*partition), offset));
    }
    let (ws, rest) = rest.split_first_chunk::<8>()?;
    let ws = WsId(u64::from_be_bytes(*ws));
    if prefix == Prefix::Answers as u16 {
        return Some(AppRow::Answer(ws, rest.try_into().ok()?));
    }
    let number = neighbour(rest, &key.ccols)?;
    if prefix == Prefix::Wlog as u16 {
        Some(AppRow::Wlog(ws, Offset(number)))
    } else if prefix == Prefix::Records as u16 {
        Some(AppRow::Record(ws, RecordId(number)))
    } else {
        None
    }
}

/// Returns the number of a neighbour.
fn neighbour(high: &[u8], low: &[u8]) -> Option<u64> {
    let high = u64::from_be_bytes(high.try_into().ok()?);
    let low = u16::from_be_bytes(low.try_into().ok()?);
    Some(high.checked_mul(NEIGHBOURS)? + u64::from(low) % NEIGHBOURS)
}
