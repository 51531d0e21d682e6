//! The file system as the driver uses it. Tests put a simulated file system below the driver.

mod monitored;
mod read_only;
pub(crate) mod real;
#[cfg(all(test, target_os = "linux"))]
mod tests;

use std::{
    ffi::OsString,
    fmt, io,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

use redb::{Builder, Database, DatabaseError, StorageBackend};

pub(crate) use self::monitored::PageCache;
use self::{monitored::MonitoredFile, read_only::ReadOnlyFile};

/// A file system.
pub(crate) trait Disk: fmt::Debug + Send + Sync + 'static {
    /// The kind of thing at `path`. This follows links.
    fn path_kind(&self, path: &Path) -> io::Result<PathKind>;

    /// Opens a file. A new file can be read and written only by its owner.
    fn file(&self, path: &Path, mode: OpenMode) -> io::Result<OpenFile>;

    /// Gives a file another name. Fails if the name is taken. The file keeps its former name,
    /// unless the file system has no links.
    fn link(&self, file: &Path, name: &Path) -> io::Result<()>;

    /// Removes a name of a file.
    fn remove(&self, name: &Path) -> io::Result<()>;

    /// All names in a folder.
    fn names(&self, folder: &Path) -> io::Result<Vec<OsString>>;

    /// Makes a folder and the folders above it, so that a power failure does not undo it.
    fn make_folder(&self, folder: &Path) -> io::Result<()>;

    /// Opens a folder. Calling the result makes the names in the folder durable. Until then a power
    /// failure can lose the names, and with them all acknowledged rows in those files.
    ///
    /// Only an error of that call is a failed sync. If the folder cannot be opened, for example
    /// because the process has too many open files, nothing is lost, and another try may succeed.
    fn open_folder(&self, folder: &Path) -> io::Result<FolderSync>;

    /// Whether an open file is still found under its name. An error says nothing about the file.
    fn is_in_place(&self, path: &Path, open: Identity) -> bool {
        match self.path_kind(path) {
            Ok(PathKind::File { identity, .. }) => identity == open,
            found => found.is_err(),
        }
    }

    /// Opens a folder and makes the names in it durable, for callers that do not care which of the
    /// two failed.
    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.open_folder(folder).and_then(|sync| sync())
    }
}

/// The sync of an open folder.
pub(crate) type FolderSync = Box<dyn FnOnce() -> io::Result<()>>;

/// The ways to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenMode {
    /// The file exists.
    Existing,
    /// The file is made. Opening fails if the file exists.
    New,
    /// The file exists and is not changed: the writes of redb stay in memory.
    ReadOnly,
}

/// An open redb file. Its name may meanwhile be removed, or be given to another file.
pub(crate) struct OpenDatabase {
    pub(crate) database: Database,
    pub(crate) identity: Identity,
}

/// The device and the number of a file. No other file has the same pair while the file is open.
/// `None` on systems where files have no numbers.
pub(crate) type Identity = Option<(u64, u64)>;

/// The kind of thing at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PathKind {
    Absent,
    File {
        identity: Identity,
        len: u64,
    },
    /// A link to a path with nothing there.
    DanglingLink(PathBuf),
    /// A folder, or something else that cannot be written like a file.
    Other(&'static str),
}

impl PathKind {
    const FOLDER: PathKind = PathKind::Other("a folder");
    const DEVICE: PathKind = PathKind::Other("a pipe, a socket or a device");
}

/// An open file: of the log, or before redb uses it.
pub(crate) struct OpenFile {
    pub(crate) file: Box<dyn StorageBackend>,
    pub(crate) cache: Box<dyn PageCache>,
    pub(crate) identity: Identity,
}

/// The folder of a file.
pub(crate) fn folder_of(path: &Path) -> PathBuf {
    // A path without a parent is a name in the working directory.
    let named = |folder: &&Path| !folder.as_os_str().is_empty();
    path.parent().filter(named).unwrap_or(Path::new(".")).to_owned()
}

/// Opens a redb file. redb reads the contents of the disk, and not the pages that the system has in
/// memory. `has_failed_sync` becomes true when a sync of the file fails.
pub(crate) fn database(
    OpenFile { file, cache, identity }: OpenFile,
    mode: OpenMode,
    builder: &Builder,
    has_failed_sync: &Arc<AtomicBool>,
) -> Result<OpenDatabase, DatabaseError> {
    let file = match mode {
        OpenMode::Existing | OpenMode::New => file,
        OpenMode::ReadOnly => Box::new(ReadOnlyFile::new(file)),
    };
    let file = MonitoredFile::new(file, cache, Arc::clone(has_failed_sync));
    Ok(OpenDatabase { database: builder.create_with_backend(file)?, identity })
}
