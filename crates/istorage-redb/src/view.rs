//! The rows of one moment, from the [tables](crate::tables) in memory and a snapshot of the file.

use std::sync::Arc;

use bytes::Bytes;
use istorage::{Error, ErrorKind, KeyspaceName, Result};
use redb::{ReadOnlyTable, ReadTransaction, TableError};

use crate::{
    errors::{self, FileFailure},
    file::StorageFile,
    gaps::Gaps,
    layout::{Keyspace, META, META_LOG},
    log::LogState,
    mem_table::MemRow,
    search::{self, Found},
    tables::{Held, Tables},
};

/// The rows of a keyspace in a snapshot.
pub(crate) type RowTable = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// How often a view looks for a snapshot that fits the tables. A new one does not fit only if a
/// whole table was filed meanwhile, so the second one nearly always fits.
const TURNS: usize = 100;

/// A snapshot of the file.
struct FileSnapshot {
    txn: ReadTransaction,
    /// The snapshot has all rows of the segments of the log before this one, and no others.
    segment: u64,
    tables: Vec<(KeyspaceName, RowTable)>,
}

impl FileSnapshot {
    fn begin(file: &StorageFile) -> std::result::Result<FileSnapshot, FileFailure> {
        let txn = file.begin_read()?;
        let segment = match txn.open_table(META)?.get(META_LOG)? {
            Some(bytes) => match LogState::parse(bytes.value()) {
                Some(state) => state.position.segment,
                None => return Err(FileFailure::damaged("the state of its log cannot be read")),
            },
            // A file of a former format that is only read.
            None => 0,
        };
        Ok(FileSnapshot { txn, segment, tables: Vec::new() })
    }

    /// The table of a keyspace; `None` if there is no such keyspace.
    fn table(&mut self, keyspace: &Keyspace) -> Result<Option<&RowTable>> {
        let tables = &mut self.tables;
        let at = match tables.iter().position(|(name, _)| *name == keyspace.name) {
            Some(at) => at,
            None => {
                let table = match self.txn.open_table(keyspace.rows()) {
                    Ok(table) => table,
                    Err(TableError::TableDoesNotExist(_)) => return Ok(None),
                    Err(error) => return Err(FileFailure::from(error).into()),
                };
                tables.push((keyspace.name.clone(), table));
                tables.len() - 1
            }
        };
        Ok(Some(&tables[at].1))
    }
}

/// The rows of a file for one thread. A snapshot is used for as long as it fits the tables.
pub(crate) struct RowView {
    file: Arc<StorageFile>,
    tables: Arc<Tables>,
    snapshot: Option<FileSnapshot>,
    /// The gaps outlive the snapshot in which they were found.
    gaps: Gaps,
}

impl RowView {
    pub(crate) fn new(file: Arc<StorageFile>, tables: Arc<Tables>) -> RowView {
        RowView { file, tables, snapshot: None, gaps: Gaps::default() }
    }

    /// Gives the snapshot back. A snapshot keeps its pages, and a file that failed is not opened
    /// again before its last snapshot has ended.
    pub(crate) fn forget(&mut self) {
        self.snapshot = None;
    }

    /// Looks into the tables, beside a snapshot that fits them. `look` returns what it found in the
    /// tables; no call of the disk is made meanwhile.
    pub(crate) fn of_one_moment<T>(&mut self, look: impl Fn(&Held) -> T) -> Result<T> {
        self.look(|held, _, has_file| has_file.then(|| look(held)))
    }

    /// Looks for rows in the tables. A snapshot that fits them has the other rows; none is begun if
    /// the tables have all.
    pub(crate) fn in_memory(
        &mut self,
        keyspace: &Keyspace,
        keys: &[Vec<u8>],
    ) -> Result<Vec<Option<MemRow>>> {
        self.look(|held, _, has_file| {
            let rows = keys.iter().map(|key| held.get(&keyspace.name, key).cloned());
            let rows: Vec<_> = rows.collect();
            (has_file || rows.iter().all(Option::is_some)).then_some(rows)
        })
    }

    /// Looks into the tables. `look` is told whether the present snapshot fits them. If it needs
    /// one, it returns `None`, and looks again.
    fn look<T>(&mut self, look: impl Fn(&Held, &RowView, bool) -> Option<T>) -> Result<T> {
        for _ in 0..TURNS {
            let held = self.tables.hold();
            if self.file.has_failed_sync() || self.file.is_unsettled() {
                break;
            }
            let fits = self.snapshot.as_ref().is_some_and(|snapshot| held.fits(snapshot.segment));
            if let Some(found) = look(&held, self, fits) {
                return Ok(found);
            }
            drop(held);
            let snapshot = FileSnapshot::begin(&self.file)?;
            self.gaps.note_segment(snapshot.segment);
            self.snapshot = Some(snapshot);
        }
        Err(self.file.not_usable().into())
    }

    /// The table of a keyspace in the present snapshot; `None` if there is no such keyspace.
    pub(crate) fn find_table(&mut self, keyspace: &Keyspace) -> Result<Option<&RowTable>> {
        match &mut self.snapshot {
            Some(snapshot) => snapshot.table(keyspace),
            None => Err(self.file.not_usable().into()),
        }
    }

    /// The table of a keyspace in the present snapshot.
    pub(crate) fn table(&mut self, keyspace: &Keyspace) -> Result<&RowTable> {
        self.find_table(keyspace)?.ok_or_else(|| errors::no_keyspace(&keyspace.name))
    }

    /// The bytes of a row at this moment.
    pub(crate) fn row(&mut self, keyspace: &Keyspace, key: &[u8]) -> Result<MemRow> {
        self.again(keyspace, |view| {
            let known = view.look(|held, view, has_file| match held.get(&keyspace.name, key) {
                Some(row) => Some(Some(row.clone())),
                None if view.is_in_gap(held, keyspace, key) => Some(Some(None)),
                None => has_file.then_some(None),
            })?;
            known.map_or_else(|| view.search(keyspace, key, true), Ok)
        })
    }

    /// Whether a search has shown that the file has no row with this key. The tables have none.
    fn is_in_gap(&self, held: &Held, keyspace: &Keyspace, key: &[u8]) -> bool {
        held.fits(self.gaps.segment()) && self.gaps.have(&keyspace.name, key)
    }

    /// The bytes of a row in the present snapshot of the file. If there is none, `notes_gap` tells
    /// whether the gap in which the search ends is to be known afterwards.
    pub(crate) fn search(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        notes_gap: bool,
    ) -> Result<MemRow> {
        let RowView { file, snapshot, gaps, .. } = self;
        let Some(snapshot) = snapshot else { return Err(file.not_usable().into()) };
        let table = snapshot.table(keyspace)?;
        let table = table.ok_or_else(|| errors::no_keyspace(&keyspace.name))?;
        let name = || keyspace.row_name(key);
        let failed = |error| errors::read_error(name(), error);
        let found =
            errors::catch_page_error(|| match search::find(table, key).map_err(failed)? {
                Found::Row(row) => Ok(Some(Bytes::copy_from_slice(row.value()))),
                Found::Nothing(gap) => {
                    if notes_gap
                        && let Some(gap) = search::gap_from(table, key, gap).map_err(failed)?
                    {
                        gaps.add(&keyspace.name, gap);
                    }
                    Ok(None)
                }
            });
        found.unwrap_or_else(|page_error| Err(errors::damaged_row(name(), page_error)))
    }

    /// Reads, and reads once more with a new snapshot if the file is unavailable.
    ///
    /// Without the second try, a failure of the file would fail reads that have nothing to do with
    /// it: a thread begins a snapshot; the filer meets an error and opens the file again; then
    /// every read from the old snapshot fails.
    pub(crate) fn again<T>(
        &mut self,
        keyspace: &Keyspace,
        read: impl Fn(&mut RowView) -> Result<T>,
    ) -> Result<T> {
        let run = |view: &mut RowView| {
            errors::catch_page_error(|| read(view)).unwrap_or_else(|page_error| {
                Err(errors::damaged_row(keyspace.table_label(), page_error))
            })
        };
        match run(self) {
            Err(error) if is_unavailable(&error) => {
                self.snapshot = None;
                run(self)
            }
            done => done,
        }
    }
}

pub(crate) fn is_unavailable(error: &Error) -> bool {
    error.kind() == ErrorKind::Unavailable
}
