//! The rows of an application's keyspace, by their meaning.

use std::{fmt, num::NonZeroU16};

use bytes::BytesMut;
use istorage::Key;

use crate::{
    DamagedRow, DecodeError, Entry, Offset, RecordId, StoredAnswer, StoredRecord, WsId, layout,
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
        layout::app_row(key).filter(|row| row.key() == *key)
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
        f.write_str(" (key ")?;
        for byte in &pkey {
            write!(f, "{byte:02x}")?;
        }
        f.write_str("/")?;
        for byte in &ccols {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}
