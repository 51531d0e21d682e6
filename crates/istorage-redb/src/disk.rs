//! The file system as the driver uses it. Tests put a simulated file system below the driver.

mod monitored;
mod read_only;
#[cfg(all(test, target_os = "linux"))]
mod tests;

use std::{
    ffi::OsString,
    fmt,
    fs::{self, File, Metadata, OpenOptions},
    io,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

use redb::{Builder, Database, DatabaseError, StorageBackend, backends::FileBackend};

use self::{monitored::MonitoredFile, read_only::ReadOnlyFile};

/// A file system.
pub(crate) trait Disk: fmt::Debug + Send + Sync + 'static {
    /// The kind of thing at `path`. Links are followed.
    fn path_kind(&self, path: &Path) -> io::Result<PathKind>;

    /// Opens the redb file at `path`. redb reads the contents of the disk, and not the pages that
    /// the system has in memory. `has_failed_sync` becomes true when a sync of the file fails.
    fn database(
        &self,
        path: &Path,
        mode: OpenMode,
        builder: &Builder,
        has_failed_sync: &Arc<AtomicBool>,
    ) -> Result<OpenDatabase, DatabaseError>;

    /// Gives a file another name. Fails if the name is taken.
    fn link(&self, file: &Path, name: &Path) -> io::Result<()>;

    /// Removes a name of a file.
    fn remove(&self, name: &Path) -> io::Result<()>;

    /// All names in a folder.
    fn names(&self, folder: &Path) -> io::Result<Vec<OsString>>;

    /// Makes a folder and the folders above it, so that a power failure does not undo it.
    fn make_folder(&self, folder: &Path) -> io::Result<()>;

    /// Makes the names in a folder durable. Until then a power failure can lose the names, and with
    /// them all acknowledged rows in those files.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
}

/// The ways to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenMode {
    /// The file exists.
    Existing,
    /// The file is made. Opening fails if the file exists.
    New,
    /// The file exists and is not changed: writes of redb are kept in memory.
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
    /// A link to a path at which there is nothing.
    DanglingLink(PathBuf),
    /// A folder, or something else that cannot be written like a file.
    Other(&'static str),
}

/// An open file, before redb uses it.
#[derive(Debug)]
pub(crate) struct OpenFile<F, C> {
    pub(crate) file: F,
    pub(crate) cache: C,
    pub(crate) identity: Identity,
}

/// The pages of one file that the system keeps in memory.
pub(crate) trait PageCache: fmt::Debug + Send + Sync + 'static {
    /// Forgets the pages that need no write any more, so that the next read asks the disk. The
    /// pages are those of the first `len` bytes, or all pages.
    ///
    /// Linux tries once to write a page. After the sync that reports the failure, Linux shows the
    /// page in reads and never writes it again. At a power failure the page is lost.
    fn forget(&self, len: Option<u64>) -> io::Result<()>;
}

/// Opens a redb file of any file system.
pub(crate) fn open<F: StorageBackend, C: PageCache>(
    OpenFile { file, cache, identity }: OpenFile<F, C>,
    mode: OpenMode,
    builder: &Builder,
    has_failed_sync: &Arc<AtomicBool>,
) -> Result<OpenDatabase, DatabaseError> {
    let has_failed_sync = Arc::clone(has_failed_sync);
    let database = match mode {
        OpenMode::Existing | OpenMode::New => {
            builder.create_with_backend(MonitoredFile::new(file, cache, has_failed_sync))?
        }
        OpenMode::ReadOnly => {
            let file = ReadOnlyFile::new(file)?;
            builder.create_with_backend(MonitoredFile::new(file, cache, has_failed_sync))?
        }
    };
    Ok(OpenDatabase { database, identity })
}

/// The file system of this machine.
#[derive(Debug)]
pub(crate) struct RealDisk;

impl RealDisk {
    /// Opens a file. A new file can be read and written only by its owner.
    pub(crate) fn file(
        path: &Path,
        mode: OpenMode,
    ) -> io::Result<OpenFile<FileBackend, FilePageCache>> {
        let mut options = OpenOptions::new();
        options.read(true).write(mode != OpenMode::ReadOnly).create_new(mode == OpenMode::New);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path)?;
        let identity = identity(&file.metadata()?);
        let cache = FilePageCache(file.try_clone()?);
        let file = FileBackend::new(file).map_err(io::Error::other)?;
        Ok(OpenFile { file, cache, identity })
    }
}

/// The pages of a file that this system keeps in memory.
#[derive(Debug)]
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux is asked to forget"))]
pub(crate) struct FilePageCache(File);

impl PageCache for FilePageCache {
    fn forget(&self, len: Option<u64>) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::{Advice, fadvise};
            fadvise(&self.0, 0, len.and_then(std::num::NonZeroU64::new), Advice::DontNeed)?;
        }
        Ok(())
    }
}

impl Disk for RealDisk {
    fn path_kind(&self, path: &Path) -> io::Result<PathKind> {
        match fs::metadata(path) {
            Ok(found) if found.is_file() => {
                Ok(PathKind::File { identity: identity(&found), len: found.len() })
            }
            Ok(found) if found.is_dir() => Ok(PathKind::Other("a folder")),
            Ok(_) => Ok(PathKind::Other("a pipe, a socket or a device")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::read_link(path) {
                Ok(target) => Ok(PathKind::DanglingLink(target)),
                Err(_) => Ok(PathKind::Absent),
            },
            Err(error) => Err(error),
        }
    }

    fn database(
        &self,
        path: &Path,
        mode: OpenMode,
        builder: &Builder,
        has_failed_sync: &Arc<AtomicBool>,
    ) -> Result<OpenDatabase, DatabaseError> {
        open(RealDisk::file(path, mode)?, mode, builder, has_failed_sync)
    }

    fn link(&self, file: &Path, name: &Path) -> io::Result<()> {
        fs::hard_link(file, name)
    }

    fn remove(&self, name: &Path) -> io::Result<()> {
        fs::remove_file(name)
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect()
    }

    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        let named = |folder: &&Path| !folder.as_os_str().is_empty();
        let missing: Vec<&Path> =
            folder.ancestors().filter(named).take_while(|folder| !folder.exists()).collect();
        fs::create_dir_all(folder)?;
        // A path without a parent is a name in the working directory.
        let parent = |made: &Path| made.parent().filter(named).unwrap_or(Path::new(".")).to_owned();
        missing.into_iter().try_for_each(|made| self.sync_folder(&parent(made)))
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        // On systems other than Unix, a folder cannot be opened as a file.
        if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
    }
}

#[cfg(unix)]
fn identity(file: &Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt;
    Some((file.dev(), file.ino()))
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> Identity {
    None
}
