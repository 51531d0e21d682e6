//! The one file: opened, recognised, reopened after a failure, and given back.
//!
//! Invariant: whoever gets a transaction gets it from a file that is ours, and whoever writes from one that others find under its name.
//! Transactions keep no hold on the file: when it is closed or reopened, the reads under way fail.

mod contents;

use std::{
    fmt,
    fs::{self, File, Metadata, OpenOptions},
    io,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use istorage::{ErrorKind, Result};
use redb::{Builder, Database, DatabaseError, ReadTransaction, ReadableDatabase, WriteTransaction};

pub(crate) use self::contents::Contents;
use self::contents::initialise;
use crate::{
    Config,
    errors::{self, Failure},
};

/// Makes a database of an open file. Tests put failing disks in between.
pub(crate) type OpenDatabase =
    Arc<dyn Fn(&Builder, File) -> std::result::Result<Database, DatabaseError> + Send + Sync>;

/// The file of a node.
pub(crate) struct StorageFile {
    config: Config,
    open_database: OpenDatabase,
    /// `None` before it is opened, and while a failed file cannot be opened again.
    open: RwLock<Option<Open>>,
}

/// An open file. It may be removed, or another may get its name.
struct Open {
    database: Database,
    identity: Option<Identity>,
}

/// The device and the number of a file, which no other has as long as it is open. `None` where files have no numbers.
type Identity = (u64, u64);

#[cfg(unix)]
fn identity(file: &Metadata) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    Some((file.dev(), file.ino()))
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> Option<Identity> {
    None
}

impl fmt::Debug for StorageFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StorageFile").field(&self.config.path).finish()
    }
}

impl StorageFile {
    pub(crate) fn new(config: Config, open_database: OpenDatabase) -> StorageFile {
        StorageFile { config, open_database, open: RwLock::new(None) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.config.path
    }

    /// Opens the file, and makes it if it does not exist. `unique` is a number that nobody else uses.
    pub(crate) fn open(&self, unique: u64) -> Result<Contents> {
        let folder = make_folder(self.path())?;
        if !self.path().exists() {
            self.create(unique)?;
        }
        sync_folder(&folder)?;
        self.refuse_foreign()?;
        let open = self.open_writable(self.path(), false)?;
        let contents = Contents::read(&open.database, self.path())?;
        *self.open_mut() = Some(open);
        Ok(contents)
    }

    /// Makes the file under another name first, so that a process that is killed leaves a whole file or none. On a file
    /// system without links it is made in its place, and half a file is refused by the next start.
    fn create(&self, unique: u64) -> Result<()> {
        let mut name = self.path().as_os_str().to_owned();
        name.push(format!(".new-{unique:016x}"));
        let new = Path::new(&name);
        let make = |path| -> Result<()> {
            let open = self.open_writable(path, true)?;
            Ok(initialise(&open.database).map_err(Failure::unavailable)?)
        };
        let linked = make(new).map(|()| fs::hard_link(new, self.path()));
        let removed = fs::remove_file(new);
        match linked? {
            Ok(()) => {}
            // Another process was quicker; its file is as good.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            // This file system has no links. A rename could replace the file of a process that was quicker.
            Err(_) => make(self.path())?,
        }
        removed.map_err(|error| errors::file_system("remove", new, error))
    }

    /// Closes the file and opens it again, which repairs whatever a failure left. It is never made anew.
    pub(crate) fn reopen(&self) -> Result<Contents> {
        let mut open = self.open_mut();
        // The file must be given back before it can be opened.
        *open = None;
        let opened = self.open_writable(self.path(), false)?;
        let contents = Contents::read(&opened.database, self.path())?;
        *open = Some(opened);
        Ok(contents)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open_now().is_some()
    }

    /// Whether a file is open that is not to be found any more under its name.
    pub(crate) fn is_away(&self) -> bool {
        self.open_now().as_ref().is_some_and(|open| !self.is_there(open))
    }

    fn is_there(&self, open: &Open) -> bool {
        match fs::metadata(self.path()) {
            Ok(found) => identity(&found) == open.identity,
            // Another error says nothing about the file.
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// A snapshot of everything that is on the disk.
    pub(crate) fn begin_read(&self) -> std::result::Result<ReadTransaction, Failure> {
        let open = self.open_now();
        Ok(open.as_ref().ok_or_else(|| self.not_open())?.database.begin_read()?)
    }

    /// A transaction for the one writer. Its commit is durable, and a file that crashes after it opens at once.
    ///
    /// That is what quick repair is for: without it redb would first read the file from one end to the other. It costs a
    /// second sync for each commit, and a map of the free pages: 64 KiB for each GiB of the file. One commit without it
    /// would be enough to lose the promise, so every commit has it.
    ///
    /// What is written to a file that was removed would be gone with this process.
    pub(crate) fn begin_write(&self) -> std::result::Result<WriteTransaction, Failure> {
        let open = self.open_now();
        let open = open.as_ref().ok_or_else(|| self.not_open())?;
        if !self.is_there(open) {
            let message = format!(
                "the storage file {} was removed or replaced while it is open: nothing is written until it is back",
                self.path().display()
            );
            return Err(Failure::new(ErrorKind::Unavailable, message));
        }
        let mut txn = open.database.begin_write()?;
        txn.set_quick_repair(true);
        Ok(txn)
    }

    fn not_open(&self) -> Failure {
        let path = self.path().display();
        let message =
            format!("the storage file {path} failed, and opening it again did not succeed yet");
        Failure::new(ErrorKind::Unavailable, message)
    }

    fn open_now(&self) -> RwLockReadGuard<'_, Option<Open>> {
        // It is whole at every moment.
        self.open.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_mut(&self) -> RwLockWriteGuard<'_, Option<Open>> {
        self.open.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks into an existing file without writing to it. A file that redb must repair first cannot be looked into; that
    /// is done afterwards then.
    fn refuse_foreign(&self) -> Result<()> {
        let database = match Builder::new().open_read_only(self.path()) {
            Ok(database) => database,
            Err(DatabaseError::RepairAborted) => return Ok(()),
            Err(error) => return Err(errors::opening(self.path(), error)),
        };
        Contents::read(&database, self.path()).map(drop)
    }

    fn open_writable(&self, path: &Path, create_new: bool) -> Result<Open> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create_new(create_new);
        let file = options
            .open(path)
            .map_err(|error| errors::file_system("open the storage file", path, error))?;
        let known = file.metadata().map_err(|error| errors::file_system("look at", path, error))?;
        let identity = identity(&known);
        let mut builder = Builder::new();
        builder.set_cache_size(self.config.cache_bytes);
        let shown = path.display().to_string();
        builder.set_repair_callback(move |repair| {
            let percent = repair.progress() * 100.0;
            tracing::warn!(
                file = shown,
                "the storage file is being repaired, {percent:.0} % are done"
            );
        });
        let database = (self.open_database)(&builder, file);
        let database = database.map_err(|error| errors::opening(path, error))?;
        Ok(Open { database, identity })
    }
}

/// Makes the folders above the file, so that a power failure does not undo it; returns the file's own.
fn make_folder(path: &Path) -> Result<PathBuf> {
    // A path without a parent is a name in the working directory.
    let named = |folder: &&Path| !folder.as_os_str().is_empty();
    let folder = path.parent().filter(named).unwrap_or(Path::new("."));
    let missing: Vec<&Path> =
        folder.ancestors().filter(named).take_while(|folder| !folder.exists()).collect();
    fs::create_dir_all(folder)
        .map_err(|error| errors::file_system("create the folder", folder, error))?;
    for made in missing {
        sync_folder(made.parent().filter(named).unwrap_or(Path::new(".")))?;
    }
    Ok(folder.to_owned())
}

/// Until a folder is synced, a power failure can lose the names in it, with everything acknowledged in those files.
fn sync_folder(folder: &Path) -> Result<()> {
    // Elsewhere a folder cannot be opened as a file.
    if cfg!(unix) {
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|error| errors::file_system("sync the folder", folder, error))?;
    }
    Ok(())
}
