//! The one file: opened, recognised, reopened after a failure, and given back.
//!
//! Invariant: whoever gets a transaction gets it from a file that is ours. Transactions keep no hold on the file: when it
//! is closed or reopened, the reads under way fail.

use std::{
    collections::HashMap,
    fmt,
    fs::{self, File, OpenOptions},
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use istorage::{Error, ErrorKind, KeyspaceName, Result};
use redb::{
    Builder, Database, DatabaseError, ReadTransaction, ReadableDatabase, ReadableTable, TableError,
    TableHandle, WriteTransaction,
};

use crate::{
    Config,
    errors::{self, Failure},
    layout::{self, FORMAT, Keyspace, MAGIC, META, META_FORMAT, META_MAGIC, META_TIME},
    time::Moment,
};

/// Makes a database of an open file. Tests put failing disks in between.
pub(crate) type OpenDatabase =
    Arc<dyn Fn(&Builder, File) -> std::result::Result<Database, DatabaseError> + Send + Sync>;

/// The file of a node.
pub(crate) struct StorageFile {
    config: Config,
    open_database: OpenDatabase,
    state: RwLock<State>,
}

enum State {
    Open(Database),
    /// It failed and could not be opened again yet.
    Failed,
    /// It is not opened yet, or closed for good.
    Closed,
}

/// What the writer must know about the file when it starts.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// Every keyspace, with the moment at which its first row expires.
    pub(crate) keyspaces: HashMap<KeyspaceName, Option<Moment>>,
    /// The highest time seen.
    pub(crate) time: Option<Moment>,
}

impl fmt::Debug for StorageFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StorageFile").field(&self.config.path).finish()
    }
}

impl StorageFile {
    pub(crate) fn new(config: Config, open_database: OpenDatabase) -> StorageFile {
        let state = RwLock::new(State::Closed);
        StorageFile { config, open_database, state }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.config.path
    }

    /// Opens the file, and makes it if it does not exist.
    pub(crate) fn open(&self) -> Result<Contents> {
        let folder = make_folder(self.path())?;
        if fs::metadata(self.path()).is_ok_and(|metadata| metadata.len() > 0) {
            self.refuse_foreign()?;
        }
        let database = self.open_writable(true)?;
        sync_folder(&folder)?;
        if read(&database, |txn| Ok(txn.list_tables()?.next().is_none()))? {
            initialise(&database).map_err(Failure::unavailable)?;
        }
        let contents = self.contents(&database)?;
        *self.state_mut() = State::Open(database);
        Ok(contents)
    }

    /// Closes the file and opens it again, which repairs whatever a failure left. It is never made anew.
    pub(crate) fn reopen(&self) -> Result<Contents> {
        let mut state = self.state_mut();
        // The file must be given back before it can be opened.
        *state = State::Failed;
        let database = self.open_writable(false)?;
        let contents = self.contents(&database)?;
        *state = State::Open(database);
        Ok(contents)
    }

    /// Gives the file back.
    pub(crate) fn close(&self) {
        *self.state_mut() = State::Closed;
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(*self.state(), State::Open(_))
    }

    /// A snapshot of everything that is on the disk.
    pub(crate) fn begin_read(&self) -> std::result::Result<ReadTransaction, Failure> {
        let state = self.state();
        Ok(self.database(&state)?.begin_read()?)
    }

    /// A transaction for the one writer. Its commit is durable, and a file that crashes after it opens at once.
    ///
    /// That is what quick repair is for: without it redb would first read the file from one end to the other. It costs a
    /// second sync for each commit, and a map of the free pages: 64 KiB for each GiB of the file. One commit without it
    /// would be enough to lose the promise, so every commit has it.
    pub(crate) fn begin_write(&self) -> std::result::Result<WriteTransaction, Failure> {
        let state = self.state();
        let mut txn = self.database(&state)?.begin_write()?;
        txn.set_quick_repair(true);
        Ok(txn)
    }

    fn database<'a>(&self, state: &'a State) -> std::result::Result<&'a Database, Failure> {
        let path = self.path().display();
        match state {
            State::Open(database) => Ok(database),
            State::Failed => Err(Failure::new(
                ErrorKind::Unavailable,
                format!("the storage file {path} failed and could not be opened again yet"),
            )),
            State::Closed => {
                Err(Failure::new(ErrorKind::Closed, format!("the storage file {path} is closed")))
            }
        }
    }

    fn state(&self) -> RwLockReadGuard<'_, State> {
        // The state is whole at every moment.
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks into an existing file without writing to it. A file that redb must repair first cannot be looked into; that
    /// is done afterwards then.
    fn refuse_foreign(&self) -> Result<()> {
        let database = match Builder::new().open_read_only(self.path()) {
            Ok(database) => database,
            Err(DatabaseError::RepairAborted) => return Ok(()),
            Err(error) => return Err(errors::opening(self.path(), error)),
        };
        if read(&database, |txn| Ok(txn.list_tables()?.next().is_none()))? {
            return Ok(());
        }
        self.contents(&database).map(drop)
    }

    fn open_writable(&self, create: bool) -> Result<Database> {
        let path = self.path();
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(create);
        let file = options
            .open(path)
            .map_err(|error| errors::file_system("open the storage file", path.display(), error))?;
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
        (self.open_database)(&builder, file).map_err(|error| errors::opening(path, error))
    }

    /// Recognises the file and reads what the writer must know.
    fn contents(&self, database: &impl ReadableDatabase) -> Result<Contents> {
        let (magic, format, time) = read(database, |txn| {
            let meta = match txn.open_table(META) {
                Ok(meta) => meta,
                Err(TableError::Storage(error)) => return Err(error.into()),
                Err(_) => return Ok((false, None, None)),
            };
            let number =
                |name| Ok::<_, redb::Error>(meta.get(name)?.map(|bytes| bytes.value().to_vec()));
            let magic = meta.get(META_MAGIC)?.is_some_and(|magic| magic.value() == MAGIC);
            Ok((magic, number(META_FORMAT)?, number(META_TIME)?))
        })?;
        if !magic {
            return Err(errors::foreign(self.path()));
        }
        let format = format.and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes);
        if format != Some(FORMAT) {
            return Err(Error::corrupt(format!(
                "the storage file {} has the format {}, but this version reads the format {FORMAT} only",
                self.path().display(),
                format.map_or("?".to_owned(), |format| format.to_string())
            )));
        }
        let time = time.and_then(|bytes| bytes.try_into().ok());
        let time = time.map(|bytes| Moment(u64::from_be_bytes(bytes)));
        Ok(Contents { keyspaces: keyspaces(database)?, time })
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
        .map_err(|error| errors::file_system("create the folder", folder.display(), error))?;
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
        synced.map_err(|error| errors::file_system("sync the folder", folder.display(), error))?;
    }
    Ok(())
}

fn initialise(database: &Database) -> std::result::Result<(), redb::Error> {
    let mut txn = database.begin_write()?;
    txn.set_quick_repair(true);
    {
        let mut meta = txn.open_table(META)?;
        meta.insert(META_MAGIC, MAGIC)?;
        meta.insert(META_FORMAT, &FORMAT.to_be_bytes()[..])?;
    }
    Ok(txn.commit()?)
}

fn keyspaces(database: &impl ReadableDatabase) -> Result<HashMap<KeyspaceName, Option<Moment>>> {
    let tables: Vec<String> = read(database, |txn| {
        Ok(txn.list_tables()?.map(|table| table.name().to_owned()).collect())
    })?;
    let mut keyspaces = HashMap::new();
    for keyspace in tables.iter().filter_map(|table| Keyspace::of_table(table)) {
        let keyspace = keyspace?;
        let first = read(database, |txn| {
            let expiry = txn.open_table(keyspace.expiry())?;
            Ok(expiry.first()?.map(|(key, _)| key.value().to_vec()))
        })?;
        let first = first.map(|key| layout::parse_expiry_key(&key).map(|(at, _)| at));
        keyspaces.insert(keyspace.name, first.transpose()?);
    }
    Ok(keyspaces)
}

fn read<T>(
    database: &impl ReadableDatabase,
    read: impl FnOnce(&ReadTransaction) -> std::result::Result<T, redb::Error>,
) -> Result<T> {
    let txn = database.begin_read().map_err(Failure::from)?;
    Ok(read(&txn).map_err(Failure::unavailable)?)
}
