//! The file system of this machine.

use std::{
    ffi::OsString,
    fs::{self, File, Metadata, OpenOptions},
    io,
    path::Path,
};

use redb::backends::FileBackend;

use super::{Disk, FolderSync, Identity, OpenFile, OpenMode, PageCache, PathKind, folder_of};

/// The file system of this machine.
#[derive(Debug)]
pub(crate) struct RealDisk;

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
        match kind_of(path) {
            Ok(kind) => Ok(kind),
            Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::read_link(path) {
                Ok(target) => Ok(PathKind::DanglingLink(target)),
                Err(_) => Ok(PathKind::Absent),
            },
            Err(error) => Err(error),
        }
    }

    fn file(&self, path: &Path, mode: OpenMode) -> io::Result<OpenFile> {
        let mut options = OpenOptions::new();
        options.read(true).write(mode != OpenMode::ReadOnly).create_new(mode == OpenMode::New);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path)?;
        let identity = identity(&file.metadata()?);
        let cache = Box::new(FilePageCache(file.try_clone()?));
        let file = Box::new(FileBackend::new(file).map_err(io::Error::other)?);
        Ok(OpenFile { file, cache, identity })
    }

    fn link(&self, file: &Path, name: &Path) -> io::Result<()> {
        fs::hard_link(file, name).or_else(|error| rename_to_free(file, name, error))
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
        missing.into_iter().try_for_each(|made| self.sync_folder(&folder_of(made)))
    }

    fn open_folder(&self, folder: &Path) -> io::Result<FolderSync> {
        // On systems other than Unix, a folder cannot be opened as a file.
        if cfg!(unix) {
            let folder = File::open(folder)?;
            Ok(Box::new(move || folder.sync_all()))
        } else {
            Ok(Box::new(|| Ok(())))
        }
    }
}

/// Renames a file whose link failed with `error`, and never replaces another file. Returns that
/// error if the name is taken, or if the file system cannot rename in this way.
#[cfg(target_os = "linux")]
pub(super) fn rename_to_free(file: &Path, name: &Path, error: io::Error) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    renameat_with(CWD, file, CWD, name, RenameFlags::NOREPLACE).map_err(|_| error)
}

#[cfg(not(target_os = "linux"))]
fn rename_to_free(_: &Path, _: &Path, error: io::Error) -> io::Result<()> {
    Err(error)
}

/// The kind of the thing that a path leads to. Fails if there is nothing.
///
/// This does not ask for the times of the file. When a program has asked for them, Linux gives the
/// next write a time of its own. Some file systems, as ext4 without a journal, bring that time to
/// the disk with the next sync: a second write, for each group of the log.
#[cfg(target_os = "linux")]
fn kind_of(path: &Path) -> io::Result<PathKind> {
    use rustix::{
        fs::{AtFlags, CWD, FileType, StatxFlags, makedev, statx},
        io::Errno,
    };
    let wanted = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::SIZE;
    let found = match statx(CWD, path, AtFlags::empty(), wanted) {
        // An old kernel, or a container that knows no newer calls.
        Err(Errno::NOSYS) => return kind_with_times(path),
        found => found?,
    };
    let identity = Some((makedev(found.stx_dev_major, found.stx_dev_minor), found.stx_ino));
    Ok(match FileType::from_raw_mode(found.stx_mode.into()) {
        FileType::RegularFile => PathKind::File { identity, len: found.stx_size },
        FileType::Directory => PathKind::FOLDER,
        _ => PathKind::DEVICE,
    })
}

#[cfg(not(target_os = "linux"))]
use self::kind_with_times as kind_of;

fn kind_with_times(path: &Path) -> io::Result<PathKind> {
    let found = fs::metadata(path)?;
    Ok(match found.file_type() {
        kind if kind.is_file() => PathKind::File { identity: identity(&found), len: found.len() },
        kind if kind.is_dir() => PathKind::FOLDER,
        _ => PathKind::DEVICE,
    })
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
