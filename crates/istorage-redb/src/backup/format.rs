//! The bytes of a backup. A change of anything here needs a new [`BACKUP_FORMAT`].
//!
//! The head is the mark of backups, `[u32 format of the backup][u32 format of the file]`, and the
//! time of the file, `[u64]`. Then follow items. Each has its kind in the first byte:
//!
//! - a keyspace: `[u8 length][name]`;
//! - a row of the last keyspace: `[u32 length of the key][u32 length of the row][key][row]`, with
//!   the key and the row as they are in the file;
//! - the end: `[u64 keyspaces][u64 rows][u32 CRC-32 of all bytes before it]`.
//!
//! Numbers are big endian. Keyspaces are in the order of their names, rows in the order of their
//! keys.

use bytes::Bytes;
use istorage::{Error, KeyspaceName};

use crate::{layout::FORMAT, time::Moment};

/// Marks backups among other files.
pub(super) const MAGIC: &[u8; 16] = b"vvm redb backup\n";
/// The version of everything in this module.
pub(super) const BACKUP_FORMAT: u32 = 1;

pub(super) const KEYSPACE: u8 = 1;
pub(super) const ROW: u8 = 2;
pub(super) const END: u8 = 3;

/// Makes the bytes of a backup.
pub(super) struct BackupEncoder {
    piece: Vec<u8>,
    sum: crc32fast::Hasher,
    keyspaces: u64,
    rows: u64,
}

impl BackupEncoder {
    /// Begins a backup with its head.
    pub(super) fn new(time: Moment) -> BackupEncoder {
        let numbers = [BACKUP_FORMAT.to_be_bytes(), FORMAT.to_be_bytes()].concat();
        let piece = [&MAGIC[..], &numbers, &time.0.to_be_bytes()].concat();
        BackupEncoder { piece, sum: crc32fast::Hasher::new(), keyspaces: 0, rows: 0 }
    }

    /// The number of bytes of the piece so far.
    pub(super) fn len(&self) -> usize {
        self.piece.len()
    }

    pub(super) fn keyspace(&mut self, name: &KeyspaceName) {
        self.keyspaces += 1;
        // A name has at most 48 bytes.
        self.piece.extend_from_slice(&[KEYSPACE, name.as_str().len() as u8]);
        self.piece.extend_from_slice(name.as_str().as_bytes());
    }

    pub(super) fn row(&mut self, key: &[u8], row: &[u8]) {
        self.rows += 1;
        self.piece.push(ROW);
        // Keys and rows have at most some MiB.
        for part in [key, row] {
            self.piece.extend_from_slice(&(part.len() as u32).to_be_bytes());
        }
        self.piece.extend_from_slice(key);
        self.piece.extend_from_slice(row);
    }

    /// Ends the piece.
    pub(super) fn take(&mut self) -> Bytes {
        self.sum.update(&self.piece);
        std::mem::take(&mut self.piece).into()
    }

    /// Ends the last piece.
    pub(super) fn end(&mut self) -> Bytes {
        self.piece.push(END);
        self.piece.extend_from_slice(&self.keyspaces.to_be_bytes());
        self.piece.extend_from_slice(&self.rows.to_be_bytes());
        self.sum.update(&self.piece);
        let sum = self.sum.clone().finalize();
        self.piece.extend_from_slice(&sum.to_be_bytes());
        std::mem::take(&mut self.piece).into()
    }
}

/// The error for a backup that cannot be used.
pub(super) fn damaged_backup(why: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("the backup is damaged: {why}; use another backup"))
}
