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
        Arc, RwLock, RwLockWriteGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use base::locks::{read, write};
use istorage::{Error, ErrorKind, Result};
use redb::{Builder, Database, ReadTransaction, ReadableDatabase, WriteTransaction};

pub(crate) use self::contents::Contents;
use crate::{
    RedbConfig,
    disk::{Disk, OpenDatabase, OpenMode, PathKind, folder_of},
    errors::{self, FileFailure},
    log::{LogFiles, LogPosition, LogSizes, LogTail, WriteLog, refuse_foreign},
};

/// The storage file of a node.
pub(crate) struct StorageFile {
    config: RedbConfig,
    disk: Arc<dyn Disk>,
    log: LogFiles,
    /// `Existing`, or `ReadOnly` for a file that is never changed.
    mode: OpenMode,
    /// The open file. `None` before the first opening, and while a failed file cannot be opened
    /// again.
    open: RwLock<Option<OpenDatabase>>,
    /// Whether the open file lacks answered writes that only the log has. The writer holds the lock
    /// while it brings them into the file.
    lacks_answered: RwLock<bool>,
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
}

impl fmt::Debug for StorageFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StorageFile").field(&self.config.path).finish()
    }
}

impl StorageFile {
    pub(crate) fn new(config: RedbConfig, disk: Arc<dyn Disk>, sizes: LogSizes) -> StorageFile {
        let has_failed_sync = Arc::default();
        let log =
            LogFiles::new(Arc::clone(&disk), &config.path, sizes, Arc::clone(&has_failed_sync));
        let (mode, open) = (OpenMode::Existing, RwLock::new(None));
        let lacks_answered = RwLock::default();
        StorageFile { config, disk, log, mode, open, lacks_answered, has_failed_sync }
    }

    /// A file that is never changed. Its lock keeps away every process that would change it.
    pub(crate) fn for_reading(config: RedbConfig, disk: Arc<dyn Disk>) -> StorageFile {
        let file = StorageFile::new(config, disk, LogSizes::default());
        StorageFile { mode: OpenMode::ReadOnly, ..file }
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.mode == OpenMode::ReadOnly
    }

    pub(crate) fn path(&self) -> &Path {
        &self.config.path
    }

    /// Opens the file and its log. Makes them if they do not exist, unless the file is only read:
    /// then it has no log to write to. No other call uses the number `unique`.
    pub(crate) fn open(&self, unique: u64) -> Result<OpenedFile> {
        self.config.check().map_err(Error::invalid_setting)?;
        if self.is_read_only() {
            let contents = self.open_existing()?;
            return Ok(OpenedFile { contents, log: None, is_to_check: false });
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
        let is_to_check = contents.log.is_some_and(|log| !log.is_closed);
        drop(open);
        let (open, contents, log) = self.load_to_write(|database, last| {
            let last = last.unwrap_or_else(|| LogPosition::new(unique));
            Ok(WriteLog::start(self.log.clone(), database, last)?)
        })?;
        *write(&self.open) = Some(open);
        self.remove_left_overs(&folder);
        Ok(OpenedFile { contents, log: Some(log), is_to_check })
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
        match &contents.log {
            Some(state) => Ok(Some(LogTail::read(&self.log, state)?)),
            None => refuse_foreign(&self.log).map(|()| None),
        }
    }

    /// Opens the existing file for the writer, with the effects of all frames of its log.
    ///
    /// `take_up` makes sure that the effects are on the disk, because a frame of the log may be in
    /// the memory of the system only.
    fn load_to_write(
        &self,
        take_up: impl FnOnce(&Database, Option<LogPosition>) -> Result<WriteLog>,
    ) -> Result<(OpenDatabase, Contents, WriteLog)> {
        let (open, contents) = self.load(OpenMode::Existing)?;
        let recovered = errors::catch_page_error(|| {
            let last = match self.tail(&contents)? {
                Some(tail) => {
                    tail.replay(&open.database)?;
                    Some(tail.last())
                }
                None => None,
            };
            let log = take_up(&open.database, last)?;
            Ok((Contents::read(&open.database, self.path())?, log))
        });
        match recovered.unwrap_or_else(|page| Err(errors::unusable_file(self.path(), &page))) {
            Ok((contents, log)) => Ok((open, contents, log)),
            Err(error) => {
                abandon(Some(open));
                Err(error)
            }
        }
    }

    /// Opens the existing file for reading only, with the effects of all frames of its log. Nothing
    /// on the disk changes.
    pub(crate) fn load_to_read(&self) -> Result<(OpenDatabase, Contents)> {
        let (open, contents) = self.load(OpenMode::ReadOnly)?;
        let replayed = errors::catch_page_error(|| {
            let Some(tail) = self.tail(&contents)? else { return Ok(contents) };
            tail.replay(&open.database)?;
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

    /// Opens a file that is only read.
    fn open_existing(&self) -> Result<Contents> {
        if self.path_kind()? == PathKind::Absent {
            let path = self.path().display();
            return Err(Error::invalid(format!("there is no storage file at {path}")));
        }
        let (open, contents) = self.load_to_read()?;
        *write(&self.open) = Some(open);
        Ok(contents)
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
            let open = self.disk.database(path, mode, &self.builder(), &self.has_failed_sync);
            let open = open.map_err(|error| errors::open_error(path, error))?;
            let contents = Contents::read(&open.database, path)?;
            Ok((open, contents))
        });
        loaded.unwrap_or_else(|page_error| Err(errors::unusable_file(path, &page_error)))
    }

    fn builder(&self) -> Builder {
        let mut builder = Builder::new();
        builder.set_cache_size(self.config.cache_bytes);
        let shown = self.path().display().to_string();
        builder.set_repair_callback(move |repair| {
            let percent = repair.progress() * 100.0;
            tracing::warn!(file = shown, "the storage file is being repaired: {percent:.0} % done");
        });
        builder
    }

    /// Closes the file and opens it again. Opening repairs everything that a failure left. This
    /// never makes a new file.
    pub(crate) fn reopen(&self) -> Result<(Contents, Option<WriteLog>)> {
        let mut open = write(&self.open);
        // The old handle must release its lock before the file can be opened.
        abandon(open.take());
        if self.has_failed_sync() {
            return Err(FileFailure::failed_sync(self.path()).into());
        }
        if self.is_read_only() {
            let (opened, contents) = self.load_to_read()?;
            *open = Some(opened);
            return Ok((contents, None));
        }
        let (opened, contents, log) = self.load_to_write(|_, last| {
            let last = last.ok_or_else(|| errors::damaged_file(self.path(), "its log is lost"))?;
            Ok(WriteLog::resume(self.log.clone(), last)?)
        })?;
        *open = Some(opened);
        *self.hold_snapshots() = false;
        Ok((contents, Some(log)))
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

    /// Whether the open file is no longer found under its name.
    pub(crate) fn is_missing(&self) -> bool {
        read(&self.open).as_ref().is_some_and(|open| !self.is_in_place(open))
    }

    fn is_in_place(&self, open: &OpenDatabase) -> bool {
        match self.disk.path_kind(self.path()) {
            Ok(PathKind::File { identity, .. }) => identity == open.identity,
            Ok(_) => false,
            // An error says nothing about the file.
            Err(_) => true,
        }
    }

    /// Begins a snapshot of everything that is on the disk. It has every answered write.
    pub(crate) fn begin_read(&self) -> std::result::Result<ReadTransaction, FileFailure> {
        let open = read(&self.open);
        let lacks_answered = read(&self.lacks_answered);
        let open = open.as_ref().filter(|_| !*lacks_answered).ok_or_else(|| self.not_open())?;
        Ok(open.database.begin_read()?)
    }

    /// Lets no snapshot begin until the guard is dropped. If its value is true then, the file takes
    /// no calls until it is opened again.
    pub(crate) fn hold_snapshots(&self) -> RwLockWriteGuard<'_, bool> {
        // The writer sets the value before anything can panic, so a poisoned lock has the truth.
        write(&self.lacks_answered)
    }

    /// Begins a transaction for the one writer. Only the [log](crate::log) commits it.
    ///
    /// A transaction is refused if the file was removed or replaced. Data written to such a file
    /// would be lost when this process ends.
    pub(crate) fn begin_write(&self) -> std::result::Result<WriteTransaction, FileFailure> {
        if self.has_failed_sync() {
            return Err(FileFailure::failed_sync(self.path()));
        }
        let open = read(&self.open);
        let open = open.as_ref().ok_or_else(|| self.not_open())?;
        if !self.is_in_place(open) {
            let message = format!(
                "the storage file {} was removed or replaced while it is open: nothing is written until it is back",
                self.path().display()
            );
            return Err(FileFailure::new(ErrorKind::Unavailable, message));
        }
        if *read(&self.lacks_answered) {
            return Err(self.not_open());
        }
        Ok(open.database.begin_write()?)
    }

    /// The failure of a call while the file is not open.
    pub(crate) fn not_open(&self) -> FileFailure {
        if self.has_failed_sync() {
            return FileFailure::failed_sync(self.path());
        }
        let path = self.path().display();
        let message =
            format!("the storage file {path} failed, and opening it again did not succeed yet");
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
