//! The backup of a file: a copy of all its rows as they were at one moment.
//!
//! Invariant: one snapshot gives all rows of a backup. Each row is verified before it is copied, so
//! a backup never holds a damaged row.

mod format;
mod offline;
mod restore;
mod verify;

use std::{collections::VecDeque, ops::Bound};

use bytes::Bytes;
use istorage::Result;
use redb::{ReadTransaction, TableHandle};

use self::format::BackupEncoder;
pub use self::{
    offline::OfflineBackup,
    restore::restore,
    verify::{BackupReport, verify_backup},
};
use crate::{
    errors::{self, FileFailure},
    file::StorageFile,
    layout::Keyspace,
    time::Moment,
};

/// A piece of a backup ends with the row that makes it this long.
const PIECE: usize = 256 << 10;

/// A backup that is being read.
pub(crate) struct BackupRun {
    snapshot: ReadTransaction,
    /// The keyspaces that are not yet read to their end, in the order of their names.
    keyspaces: VecDeque<Keyspace>,
    /// The key of the last row that was read, `None` at the beginning of a keyspace.
    last: Option<Vec<u8>>,
    encoder: BackupEncoder,
    is_done: bool,
}

impl BackupRun {
    /// Takes the snapshot. `now` is the time of the file.
    pub(crate) fn begin(file: &StorageFile, now: Moment) -> Result<BackupRun> {
        let begun = errors::catch_page_error(|| {
            let snapshot = file.begin_read()?;
            let tables = snapshot.list_tables().map_err(FileFailure::from)?;
            let keyspaces = tables.filter_map(|table| Keyspace::of_table(table.name()));
            let mut keyspaces: Vec<Keyspace> = keyspaces.collect::<Result<_>>()?;
            keyspaces.sort_by(|one, other| one.name.cmp(&other.name));
            let (encoder, keyspaces) = (BackupEncoder::new(now), keyspaces.into());
            Ok(BackupRun { snapshot, keyspaces, last: None, encoder, is_done: false })
        });
        begun.unwrap_or_else(|page_error| {
            Err(errors::damaged_row("the table of tables", page_error))
        })
    }

    /// Reads the next piece; `None` at the end.
    pub(crate) fn piece(&mut self) -> Result<Option<Bytes>> {
        if self.is_done {
            return Ok(None);
        }
        while self.encoder.len() < PIECE {
            let Some(keyspace) = self.keyspaces.front() else {
                self.is_done = true;
                return Ok(Some(self.encoder.end()));
            };
            let (snapshot, encoder) = (&self.snapshot, &mut self.encoder);
            if self.last.is_none() {
                encoder.keyspace(&keyspace.name);
            }
            let read =
                errors::catch_page_error(|| read_rows(snapshot, keyspace, &mut self.last, encoder));
            let damaged = |why| Err(errors::damaged_row(keyspace.table_label(), why));
            if read.unwrap_or_else(damaged)? {
                (self.last, _) = (None, self.keyspaces.pop_front());
            }
        }
        Ok(Some(self.encoder.take()))
    }
}

/// Copies the rows after `last` until the piece is full. Returns whether the keyspace has ended.
fn read_rows(
    snapshot: &ReadTransaction,
    keyspace: &Keyspace,
    last: &mut Option<Vec<u8>>,
    encoder: &mut BackupEncoder,
) -> Result<bool> {
    let failed = |error| errors::read_error(keyspace.table_label(), error);
    let table = snapshot.open_table(keyspace.rows()).map_err(FileFailure::from)?;
    let from = last.clone().map_or(Bound::Unbounded, Bound::Excluded);
    let from = (from.as_ref().map(Vec::as_slice), Bound::Unbounded);
    for row in table.range::<&[u8]>(from).map_err(failed)? {
        let (key, row) = row.map_err(failed)?;
        let (key, row) = (key.value(), row.value());
        keyspace.parse_row(key, row)?;
        // A page that took the place of another page has whole rows. Only their order shows the
        // damage.
        if last.as_ref().is_some_and(|last| &last[..] >= key) {
            let why = "a page holds rows of another range";
            return Err(errors::damaged_row(keyspace.table_label(), why));
        }
        encoder.row(key, row);
        last.get_or_insert_default().clear();
        last.get_or_insert_default().extend_from_slice(key);
        if encoder.len() >= PIECE {
            return Ok(false);
        }
    }
    Ok(true)
}
