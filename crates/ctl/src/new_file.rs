//! A file that gets its name when it is whole.

use std::{
    fmt::Display,
    fs::{self, File, TryLockError},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, OFlags, RenameFlags, renameat_with},
    io::Errno,
};

use crate::CommandError;

/// A file that is written under another name, `FILE.partial`. Dropping it removes it. A file that a
/// command left when it was killed is removed.
///
/// Invariant: only this process has the file open, and only its owner may open it. A simpler
/// version empties the file that is there: a program that has it open, or may open it, reads the
/// backup.
pub(crate) struct NewFile {
    path: PathBuf,
    partial: PathBuf,
    file: File,
    is_published: bool,
}

impl NewFile {
    /// Begins the file. Its name must be free. A missing folder is made.
    pub(crate) fn create(path: &Path) -> Result<NewFile, CommandError> {
        check_free(path)?;
        make_folder(folder_of(path))
            .map_err(|error| failed("make the folder", folder_of(path), error))?;
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        remove_left_over(&partial)?;
        let mut options = File::options();
        options.read(true).write(true).create_new(true);
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = match options.open(&partial) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(written_already(&partial));
            }
            file => file.map_err(|error| failed("make", &partial, error))?,
        };
        lock(&file, &partial)?;
        let path = path.to_owned();
        let new = NewFile { path, partial, file, is_published: false };
        check_free(&new.path)?;
        Ok(new)
    }

    /// Writes the file to the disk, has it verified from its beginning, and gives it its name.
    pub(crate) fn publish<T>(
        mut self,
        verify: impl FnOnce(File) -> Result<T, CommandError>,
    ) -> Result<T, CommandError> {
        let partial = &self.partial;
        self.file.sync_all().map_err(|error| failed("sync", partial, error))?;
        let written = File::open(partial).map_err(|error| failed("read", partial, error))?;
        let verified = verify(written)?;
        check_free(&self.path)?;
        give_name(partial, &self.path)
            .map_err(|error| failed("give its name to", partial, error))?;
        self.is_published = true;
        let folder = folder_of(&self.path);
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|error| failed("sync", folder, error))?;
        Ok(verified)
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_published {
            // A file that stays is removed by the next command.
            let _ = fs::remove_file(&self.partial);
        }
    }
}

/// Removes the file that a command left when it was killed. Only a file is removed, and only if no
/// command writes it.
fn remove_left_over(partial: &Path) -> Result<(), CommandError> {
    match partial.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("look at", partial, error)),
        Ok(found) if !found.is_file() => {
            let why = "it exists, and is no file: remove it, or give another name";
            return Err(CommandError::usage(format!("{}: {why}", partial.display())));
        }
        Ok(_) => {}
    }
    let mut options = File::options();
    let no_link = OFlags::NOFOLLOW.bits().cast_signed();
    std::os::unix::fs::OpenOptionsExt::custom_flags(options.read(true).write(true), no_link);
    let left = options.open(partial).map_err(|error| failed("open", partial, error))?;
    lock(&left, partial)?;
    fs::remove_file(partial).map_err(|error| failed("remove", partial, error))
}

/// Locks a partial file for this command.
fn lock(file: &File, partial: &Path) -> Result<(), CommandError> {
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(written_already(partial)),
        Err(TryLockError::Error(error)) => return Err(failed("lock", partial, error)),
    }
    // Another command may have published or removed this very file between the open and the lock.
    match is_at(file, partial).map_err(|error| failed("look at", partial, error))? {
        true => Ok(()),
        false => Err(written_already(partial)),
    }
}

fn written_already(partial: &Path) -> CommandError {
    failed("write", partial, "another command writes it")
}

/// Gives a file its name, and never replaces another file that was made since the name was free.
fn give_name(partial: &Path, name: &Path) -> io::Result<()> {
    match renameat_with(CWD, partial, CWD, name, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => give_name_by_link(partial, name),
        renamed => Ok(renamed?),
    }
}

/// As [`give_name`], for a file system that cannot rename in this way, such as NFS. A plain rename
/// replaces another file.
fn give_name_by_link(partial: &Path, name: &Path) -> io::Result<()> {
    fs::hard_link(partial, name)?;
    fs::remove_file(partial)
}

/// Makes a folder and those above it. Each new folder is synced to the disk in the folder above it.
fn make_folder(folder: &Path) -> io::Result<()> {
    let missing = folder.ancestors().take_while(|folder| !folder.exists());
    let missing: Vec<_> = missing.filter(|folder| !folder.as_os_str().is_empty()).collect();
    fs::create_dir_all(folder)?;
    missing.into_iter().try_for_each(|made| File::open(folder_of(made))?.sync_all())
}

/// The folder of a file, or of a folder.
fn folder_of(path: &Path) -> &Path {
    let named = |folder: &&Path| !folder.as_os_str().is_empty();
    path.parent().filter(named).unwrap_or(Path::new("."))
}

/// Returns whether a path names an open file.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let (open, named) = (file.metadata()?, path.symlink_metadata());
    let named = match named {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        named => named?,
    };
    Ok((open.dev(), open.ino()) == (named.dev(), named.ino()))
}

/// Refuses a path where something exists.
pub(crate) fn check_free(path: &Path) -> Result<(), CommandError> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("look at", path, error)),
        Ok(_) => {
            let path = path.display();
            Err(CommandError::usage(format!(
                "{path} exists, and is not replaced: give another name"
            )))
        }
    }
}

fn failed(what: &str, path: &Path, why: impl Display) -> CommandError {
    CommandError::unfinished(format!("cannot {what} {}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// The first example of the documents failed on a new machine: its folder did not exist.
    #[test]
    fn missing_folders_are_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("backups/of/monday");
        NewFile::create(&path).unwrap().publish(|_| Ok(())).unwrap();
        assert!(path.is_file());
        // A file in the place of a folder is kept.
        assert!(NewFile::create(&path.join("below")).is_err());
        assert!(path.is_file());
    }

    #[test]
    fn a_file_has_its_name_only_when_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let names = || fs::read_dir(folder.path()).unwrap().count();
        // A command that was killed left this.
        fs::write(folder.path().join("file.partial"), "of an earlier command").unwrap();
        let mut file = NewFile::create(&path).unwrap();
        assert!(NewFile::create(&path).is_err(), "two commands write one file");
        file.write_all(b"new").unwrap();
        let refused = file.publish(|_| Err::<(), _>(CommandError::unfinished("no")));
        assert!(refused.is_err() && names() == 0);

        let mut file = NewFile::create(&path).unwrap();
        file.write_all(b"new").unwrap();
        assert!(!path.exists());
        let read = file.publish(|file| Ok(io::read_to_string(file).unwrap())).unwrap();
        assert_eq!((read.as_str(), names()), ("new", 1));
        assert!(NewFile::create(&path).is_err(), "a file is replaced");
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }

    /// A file that somebody had put there was written. It kept its mode, and everybody who had it
    /// open could read along.
    #[test]
    fn a_file_that_is_there_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let partial = folder.path().join("file.partial");
        fs::write(&partial, "foreign").unwrap();
        fs::set_permissions(&partial, fs::Permissions::from_mode(0o666)).unwrap();
        let foreign = File::open(&partial).unwrap();
        let mut file = NewFile::create(&folder.path().join("file")).unwrap();
        file.write_all(b"secret").unwrap();
        assert_eq!(fs::metadata(&partial).unwrap().mode() & 0o777, 0o600);
        assert_eq!(io::read_to_string(foreign).unwrap(), "foreign");
        assert_eq!(fs::read(&partial).unwrap(), b"secret");
        drop(file);
        // Anything that is not a file is kept.
        fs::create_dir(&partial).unwrap();
        let refused = NewFile::create(&folder.path().join("file")).err().unwrap();
        assert!(refused.to_string().contains("is no file"), "{refused}");
    }

    /// A link in the place of the partial file led to another file, which was emptied.
    #[test]
    fn a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (other, path) = (folder.path().join("other"), folder.path().join("file"));
        fs::write(&other, "kept").unwrap();
        std::os::unix::fs::symlink(&other, folder.path().join("file.partial")).unwrap();
        assert!(NewFile::create(&path).is_err());
        assert_eq!(fs::read(&other).unwrap(), b"kept");
    }

    /// On a file system that cannot rename without replacing, an existing file was replaced.
    #[test]
    fn a_file_that_is_made_meanwhile_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let [from, to, free] = ["from", "to", "free"].map(|name| folder.path().join(name));
        fs::write(&to, "kept").unwrap();
        for name in [give_name, give_name_by_link] {
            fs::write(&from, "new").unwrap();
            assert!(name(&from, &to).is_err());
            assert_eq!(fs::read(&to).unwrap(), b"kept");
            name(&from, &free).unwrap();
            assert_eq!(fs::read(&free).unwrap(), b"new");
            assert!(!from.exists());
            fs::remove_file(&free).unwrap();
        }
    }

    /// A second command had opened the partial file before the first one gave it its name, and
    /// emptied the finished file.
    #[test]
    fn a_file_that_got_its_name_is_not_the_partial_one() {
        let folder = tempfile::tempdir().unwrap();
        let [partial, path] = ["partial", "file"].map(|name| folder.path().join(name));
        let file = File::create(&partial).unwrap();
        assert!(is_at(&file, &partial).unwrap());
        give_name(&partial, &path).unwrap();
        assert!(!is_at(&file, &partial).unwrap(), "nothing is there");
        fs::write(&partial, "of the next command").unwrap();
        assert!(!is_at(&file, &partial).unwrap(), "another file is there");
    }
}
