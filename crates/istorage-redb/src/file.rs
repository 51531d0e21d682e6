//! Recognises, opens, reopens after a failure, and closes the storage file.
//!
//! Invariant: every transaction is on a file of this driver. A write transaction begins only on a
//! file that is still found under its name. Transactions do not keep the file open: when the file
//! is closed or opened again, the reads under way fail.

mod contents;
mod create;

use std::{
    fmt,
    path::Path,
    sync::{
        Arc, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use base::locks::{read, write};
use istorage::{Error, ErrorKind, KeyspaceName, Result};
use redb::{Builder, Database, DatabaseError, ReadTransaction, ReadableDatabase, WriteTransaction};
use tokio::sync::watch;

pub(crate) use self::contents::Contents;
use crate::{
    RedbConfig,
    disk::{self, Disk, OpenDatabase, OpenMode, PathKind, folder_of},
    errors::{self, FileFailure},
    filing::{self, AtIndex, FilingTransaction},
    log::{LogFiles, LogNeed, LogSizes, LogState, LogTail, WriteLog, refuse_foreign},
    mem_table::MemTable,
    time::Moment,
};

/// The storage file of a node.
pub(crate) struct StorageFile {
    config: RedbConfig,
    disk: Arc<dyn Disk>,
    log: LogFiles,
    /// Whether the file is never changed.
    is_read_only: bool,
    /// The open file. `None` before the first opening, and while a failed file cannot be opened
    /// again.
    open: RwLock<Option<OpenDatabase>>,
    /// Whether a sync failed. After that the file is no longer used.
    has_failed_sync: Arc<AtomicBool>,
}

/// A file that was opened for the first time in this process.
pub(crate) struct OpenedFile {
    pub(crate) contents: Contents,
    /// `None` if the file is only read.
    pub(crate) log: Option<WriteLog>,
    /// Whether the file was not closed in order, so that its rows are to be
    /// [checked](crate::background_check).
    pub(crate) is_to_check: bool,
    /// Whether the index of the rows that expire is kept up: not if it is damaged.
    pub(crate) keeps_index: bool,
}

impl StorageFile {
    pub(crate) fn new(config: RedbConfig, disk: Arc<dyn Disk>, sizes: LogSizes) -> StorageFile {
        let has_failed_sync = Arc::default();
        let log =
            LogFiles::new(Arc::clone(&disk), &config.path, sizes, Arc::clone(&has_failed_sync));
        let (is_read_only, open) = (false, RwLock::new(None));
        StorageFile { config, disk, log, is_read_only, open, has_failed_sync }
    }

    /// A file that is never changed. Its lock keeps away every process that would change it.
    pub(crate) fn for_reading(config: RedbConfig, disk: Arc<dyn Disk>) -> StorageFile {
        let file = StorageFile::new(config, disk, LogSizes::default());
        StorageFile { is_read_only: true, ..file }
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    pub(crate) fn path(&self) -> &Path {
        &self.config.path
    }

    /// The size of a segment of the log and of its table.
    pub(crate) fn segment_size(&self) -> usize {
        self.log.sizes().segment
    }

    /// Opens the file and its log. Makes them if they do not exist, unless the file is only read:
    /// then it has no log to write to. No other call uses the number `unique`.
    pub(crate) fn open(&self, unique: u64) -> Result<OpenedFile> {
        self.config.check().map_err(Error::invalid_setting)?;
        if self.is_read_only() {
            let (open, contents) = self.load_to_read()?;
            *write(&self.open) = Some(open);
            let (log, is_to_check, keeps_index) = (None, false, false);
            return Ok(OpenedFile { contents, log, is_to_check, keeps_index });
        }
        let folder = folder_of(self.path());
        let disk = &self.disk;
        disk.make_folder(&folder).map_err(|error| errors::folder_not_made(&folder, error))?;
        if self.path_kind()? == PathKind::Absent {
            self.refuse_log_without_file()?;
            self.create(unique)?;
        }
        disk.sync_folder(&folder).map_err(|error| errors::folder_not_synced(&folder, error))?;
        // redb changes a file when it opens the file. So the file is first loaded as `ReadOnly`,
        // to check without a change that it is a file of this driver, and that its log is there.
        let (open, contents) = self.load(OpenMode::ReadOnly)?;
        self.tail(&contents)?;
        let is_to_check = contents.log.is_some_and(|log| log.need != LogNeed::Closed);
        drop(open);
        let (open, contents, log, keeps_index) = self.load_to_write(unique)?;
        *write(&self.open) = Some(open);
        self.remove_left_overs(&folder);
        Ok(OpenedFile { contents, log: Some(log), is_to_check, keeps_index })
    }

    /// The files of the log that exist.
    pub(crate) fn existing_logs(&self) -> Result<Vec<&Path>> {
        let existing = self.log.existing();
        existing.map_err(|error| errors::file_system("look for the log of", self.path(), error))
    }

    fn refuse_log_without_file(&self) -> Result<()> {
        match &self.existing_logs()?[..] {
            [] => Ok(()),
            // Another process may have made the file meanwhile, and its log after the file.
            logs if self.path_kind()? == PathKind::Absent => {
                Err(errors::log_without_file(self.path(), logs))
            }
            _ => Ok(()),
        }
    }

    /// Reads the frames that the file lacks; `None` if the file has no log yet.
    fn tail(&self, contents: &Contents) -> Result<Option<LogTail>> {
        let Some(state) = &contents.log else {
            return refuse_foreign(&self.log).map(|()| None);
        };
        let tail = LogTail::read(&self.log, state)?;
        // redb would make a missing table.
        let is_unknown = |(name, _): (&KeyspaceName, _)| !contents.keyspaces.contains(name);
        if tail.rows.keyspaces().any(is_unknown) {
            return Err(errors::other_log(self.log.path(state.position.segment)));
        }
        Ok(Some(tail))
    }

    /// Opens the existing file for the writer, with the rows of all frames of its log, and begins a
    /// segment of the log. `unique` becomes the number of a new log.
    fn load_to_write(&self, unique: u64) -> Result<(OpenDatabase, Contents, WriteLog, bool)> {
        let mut damage = None;
        loop {
            let (keeps_index, at_index) = (damage.is_none(), AtIndex::default());
            let (open, contents) = self.load(OpenMode::Existing)?;
            let taken = errors::catch_page_error(|| {
                let index = keeps_index.then_some(&at_index);
                let log = self.take_up(&open.database, &contents, unique, index)?;
                Ok((Contents::read(&open.database, self.path())?, log))
            });
            let error = match taken {
                Ok(Ok((contents, log))) => {
                    if let Some(error) = damage {
                        tracing::error!(file = %self.path().display(), %error, "expired rows are no longer removed from the storage file");
                    }
                    return Ok((open, contents, log, keeps_index));
                }
                Ok(Err(error)) => error,
                Err(page) => errors::unusable_file(self.path(), &page),
            };
            abandon(Some(open));
            if !(keeps_index && at_index.has_failed() && error.kind() == ErrorKind::Corrupt) {
                return Err(error);
            }
            // The rows do not need the index.
            damage = Some(error);
        }
    }

    /// Writes the rows of all frames into the file, and begins a segment. All is on the disk
    /// afterwards, because a frame of the log may be in the memory of the system only.
    fn take_up(
        &self,
        database: &Database,
        contents: &Contents,
        unique: u64,
        index: Option<&AtIndex>,
    ) -> Result<WriteLog> {
        let mut tail = self.tail(contents)?.unwrap_or_else(|| LogTail::new(unique));
        let time = contents.time.max(tail.time).unwrap_or(Moment(0));
        let commit = |rows: &MemTable, position, need| {
            let txn = database.begin_write()?;
            FilingTransaction { txn: &txn, index }.write(rows)?;
            filing::commit(txn, LogState { position, need }, time)
        };
        let named = contents.log.map_or(0, |state| state.position.segment);
        if contents.log.is_some() && tail.last.segment > named {
            // Both files of the log are in use, and the next segment needs one of them. So the file
            // gets a state that needs no log.
            commit(&std::mem::take(&mut tail.rows), tail.last, LogNeed::Repeated)?;
        }
        let log = WriteLog::begin(&self.log, &tail.last)?;
        commit(&tail.rows, log.position(), LogNeed::Needed)?;
        Ok(log)
    }

    /// Opens the existing file for reading only, with the rows of all frames of its log. Nothing on
    /// the disk changes.
    pub(crate) fn load_to_read(&self) -> Result<(OpenDatabase, Contents)> {
        if self.path_kind()? == PathKind::Absent {
            let path = self.path().display();
            return Err(Error::invalid(format!("there is no storage file at {path}")));
        }
        let (open, contents) = self.load(OpenMode::ReadOnly)?;
        let replayed = errors::catch_page_error(|| {
            let Some(tail) = self.tail(&contents)? else { return Ok(contents) };
            let txn = open.database.begin_write().map_err(FileFailure::from)?;
            FilingTransaction { txn: &txn, index: None }.write(&tail.rows)?;
            let state = LogState { position: tail.last, need: LogNeed::Needed };
            filing::commit(txn, state, contents.time.max(tail.time).unwrap_or(Moment(0)))?;
            Contents::read(&open.database, self.path())
        });
        let replayed =
            replayed.unwrap_or_else(|page| Err(errors::unusable_file(self.path(), &page)));
        match replayed {
            Ok(contents) => Ok((open, contents)),
            Err(error) => {
                abandon(Some(open));
                Err(error)
            }
        }
    }

    /// The kind of thing at the path. Fails if no storage file can be there.
    pub(crate) fn path_kind(&self) -> Result<PathKind> {
        let path = self.path();
        let cannot = |why: String| Error::invalid(format!("{} {why}", path.display()));
        let found = self.disk.path_kind(path);
        match found.map_err(|error| errors::file_system("look at", path, error))? {
            PathKind::DanglingLink(target) => Err(cannot(format!(
                "is a link to {}, which does not exist: correct the path, the link or its target",
                target.display()
            ))),
            PathKind::Other(what) => Err(cannot(format!("is {what}, and must be a file"))),
            // redb would make a new storage of an empty file.
            PathKind::File { len: 0, .. } => Err(errors::not_redb(path)),
            found => Ok(found),
        }
    }

    /// Opens the existing file, if it is a file of this driver.
    pub(crate) fn load(&self, mode: OpenMode) -> Result<(OpenDatabase, Contents)> {
        let path = self.path();
        self.path_kind()?;
        let loaded = errors::catch_page_error(|| {
            let open = self.database(path, mode)?;
            let contents = Contents::read(&open.database, path)?;
            Ok((open, contents))
        });
        loaded.unwrap_or_else(|page_error| Err(errors::unusable_file(path, &page_error)))
    }

    fn database(&self, path: &Path, mode: OpenMode) -> Result<OpenDatabase> {
        let mut builder = Builder::new();
        builder.set_cache_size(self.config.cache_bytes);
        let shown = self.path().display().to_string();
        builder.set_repair_callback(move |repair| {
            let percent = repair.progress() * 100.0;
            tracing::warn!(file = shown, "the storage file is being repaired: {percent:.0} % done");
        });
        let open = self.disk.file(path, mode).map_err(DatabaseError::from);
        open.and_then(|open| disk::database(open, mode, &builder, &self.has_failed_sync))
            .map_err(|error| errors::open_error(path, error))
    }

    /// Closes the file and opens it again, as its last commit left it. Opening repairs everything
    /// that a failure left. This never makes a new file, and refuses one that `is_known` refuses.
    pub(crate) fn reopen(&self, is_known: impl FnOnce(&Contents) -> bool) -> Result<Contents> {
        let mut open = write(&self.open);
        // The old handle must release its lock before the file can be opened.
        abandon(open.take());
        if self.has_failed_sync() {
            return Err(FileFailure::failed_sync(self.path()).into());
        }
        let (opened, contents) = match self.is_read_only() {
            true => self.load_to_read()?,
            false => self.load(OpenMode::Existing)?,
        };
        if !is_known(&contents) {
            abandon(Some(opened));
            return Err(errors::other_file(self.path()));
        }
        *open = Some(opened);
        Ok(contents)
    }

    /// Ends the driver after a failed sync. The reason is reported and logged once.
    pub(crate) fn give_up(
        &self,
        failed: &watch::Sender<Option<FileFailure>>,
        error: &dyn fmt::Display,
    ) {
        abandon(write(&self.open).take());
        let file = self.path();
        failed.send_if_modified(|reason| {
            let is_first = reason.is_none();
            if is_first {
                tracing::error!(file = %file.display(), %error, "a sync of the storage file or of its log failed: the node must be restarted");
                *reason = Some(FileFailure::failed_sync(file));
            }
            is_first
        });
    }

    /// Closes the file, and logs if it could not be closed cleanly.
    pub(crate) fn close(&self) {
        let open = write(&self.open).take();
        if let Err(error) = errors::catch_page_error(|| drop(open)) {
            let file = self.path().display();
            tracing::error!(%file, %error, "storage file not closed cleanly");
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        read(&self.open).is_some()
    }

    /// Whether a sync has failed. The data written before that sync may be lost, although reads
    /// show it. So this process never opens the file again.
    pub(crate) fn has_failed_sync(&self) -> bool {
        self.has_failed_sync.load(Ordering::Acquire)
    }

    /// Whether nobody knows which rows the log has.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.log.is_unsettled.load(Ordering::Acquire)
    }

    /// Whether the open file is no longer found under its name.
    pub(crate) fn is_missing(&self) -> bool {
        read(&self.open)
            .as_ref()
            .is_some_and(|open| !self.disk.is_in_place(self.path(), open.identity))
    }

    /// Begins a snapshot of the file.
    pub(crate) fn begin_read(&self) -> std::result::Result<ReadTransaction, FileFailure> {
        let open = read(&self.open);
        let open = open.as_ref().ok_or_else(|| self.not_usable())?;
        Ok(open.database.begin_read()?)
    }

    /// Fails if the open file is no longer found under its name.
    pub(crate) fn check_in_place(&self) -> std::result::Result<(), FileFailure> {
        read(&self.open).as_ref().map_or(Ok(()), |open| self.check_place_of(open))
    }

    fn check_place_of(&self, open: &OpenDatabase) -> std::result::Result<(), FileFailure> {
        if !self.disk.is_in_place(self.path(), open.identity) {
            let message = format!(
                "the storage file {} was removed or replaced while it is open: nothing is written until it is back",
                self.path().display()
            );
            return Err(FileFailure::new(ErrorKind::Unavailable, message));
        }
        Ok(())
    }

    /// Begins a transaction of the filer.
    ///
    /// A transaction is refused if the file was removed or replaced. Data written to such a file
    /// would be lost when this process ends.
    pub(crate) fn begin_write(&self) -> std::result::Result<WriteTransaction, FileFailure> {
        if self.has_failed_sync() {
            return Err(FileFailure::failed_sync(self.path()));
        }
        let open = read(&self.open);
        let open = open.as_ref().ok_or_else(|| self.not_usable())?;
        self.check_place_of(open)?;
        Ok(open.database.begin_write()?)
    }

    /// The failure of a call while the file or its log cannot be used.
    pub(crate) fn not_usable(&self) -> FileFailure {
        if self.has_failed_sync() {
            return FileFailure::failed_sync(self.path());
        }
        let path = self.path().display();
        let message =
            format!("the storage file {path} or its log failed, and does not work again yet");
        FileFailure::new(ErrorKind::Unavailable, message)
    }
}

/// Closes a file as a crash would, without a last write.
///
/// redb writes when it closes a file in order. After a panic that write is a commit, and the next
/// opening cannot use the commit without reading the whole file. On a damaged file, reading the
/// whole file fails. redb writes nothing while a panic unwinds, so this function drops the file
/// during a panic.
fn abandon(open: Option<OpenDatabase>) {
    let _ = errors::catch_page_error(move || {
        let _open = open;
        std::panic::resume_unwind(Box::new(()))
    });
}
