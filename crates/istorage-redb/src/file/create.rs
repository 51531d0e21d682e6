//! Making the storage file, so that a process that is killed leaves a whole file or none.

use std::{
    io,
    path::{Path, PathBuf},
};

use istorage::Result;
use redb::Database;

use super::{StorageFile, contents::initialise, folder_of};
use crate::{
    disk::{OpenMode, PathKind},
    errors::{self, FileFailure},
};

/// The text between the name of the file and a unique number, in the name of a file that is being
/// made.
const NEW: &str = ".new-";

impl StorageFile {
    /// Makes the file under another name first, so that a process that is killed leaves a whole
    /// file or none.
    ///
    /// Two processes may make the file at the same time. `link` fails if the name is taken, so the
    /// file of the first process stays. A rename would replace the file of the first process, which
    /// may already hold rows.
    ///
    /// On a file system that has neither links nor renames to a free name, the file is made in its
    /// place. If the process is killed there, the next start refuses the unfinished file.
    pub(super) fn create(&self, unique: u64) -> Result<()> {
        let (disk, path) = (&self.disk, self.path());
        let new = &self.new_name(unique);
        let make = |path: &Path| self.make(path, |_| Ok(()));
        let linked = make(new).map(|()| disk.link(new, path));
        let removed = disk.remove(new);
        match linked? {
            Ok(()) => {}
            // Another process was quicker, and its file is as good. The other process may have
            // removed our new file as a left-over.
            Err(_) if disk.path_kind(path).is_ok_and(|found| found != PathKind::Absent) => {}
            // A plain rename could replace the file of a process that was quicker.
            Err(_) => make(path)?,
        }
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(errors::file_system("remove", new, error))
            }
            _ => Ok(()),
        }
    }

    /// Makes the file with the rows that `fill` writes. The file gets its name after `check`, with
    /// what `fill` returned. A process that is killed leaves no file under the name.
    ///
    /// # Errors
    /// `Invalid` if the name is taken.
    pub(crate) fn make_whole<T>(
        &self,
        unique: u64,
        fill: impl FnOnce(&Database) -> Result<T>,
        check: impl FnOnce(&Path, &T) -> Result<()>,
    ) -> Result<T> {
        let (disk, path, new) = (&self.disk, self.path(), &self.new_name(unique));
        let folder = folder_of(path);
        disk.make_folder(&folder).map_err(|error| errors::folder_not_made(&folder, error))?;
        let linked = self.make(new, fill).and_then(|made| {
            check(new, &made)?;
            match disk.link(new, path) {
                Ok(()) => Ok(made),
                Err(_) if disk.path_kind(path).is_ok_and(|found| found != PathKind::Absent) => {
                    Err(errors::taken(path))
                }
                Err(error) => Err(errors::not_named(path, error)),
            }
        });
        let removed = disk.remove(new);
        let made = linked?;
        match removed {
            // A file system without links has renamed the file.
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(errors::file_system("remove", new, error));
            }
            _ => {}
        }
        disk.sync_folder(&folder).map_err(|error| errors::folder_not_synced(&folder, error))?;
        self.remove_left_overs(&folder);
        Ok(made)
    }

    /// The name of the file while it is being made.
    fn new_name(&self, unique: u64) -> PathBuf {
        let mut name = self.path().as_os_str().to_owned();
        name.push(format!("{NEW}{unique:016x}"));
        name.into()
    }

    /// Makes a file of this driver at a free path, and closes it.
    fn make<T>(&self, path: &Path, fill: impl FnOnce(&Database) -> Result<T>) -> Result<T> {
        let open = self.database(path, OpenMode::New)?;
        initialise(&open.database).map_err(FileFailure::unavailable)?;
        fill(&open.database)
    }

    /// Removes the files left by processes that were killed while they made the storage file.
    ///
    /// This function is called when the storage file has its name. A process B that is making the
    /// file at this moment may lose its new file here. B then finds the name taken, so no data is
    /// lost.
    pub(super) fn remove_left_overs(&self, folder: &Path) {
        let Some(own) = self.path().file_name().and_then(|name| name.to_str()) else { return };
        let is_left_over = |name: &str| {
            let unique = name.strip_prefix(own).and_then(|rest| rest.strip_prefix(NEW));
            unique
                .is_some_and(|unique| unique.len() == 16 && u64::from_str_radix(unique, 16).is_ok())
        };
        let names = self.disk.names(folder).unwrap_or_default();
        for name in names.iter().filter(|name| name.to_str().is_some_and(is_left_over)) {
            let left_over = folder.join(name);
            match self.disk.remove(&left_over) {
                Ok(()) => tracing::info!(file = %left_over.display(), "left-over file removed"),
                Err(error) => {
                    let file = left_over.display();
                    tracing::warn!(%file, %error, "a left-over file could not be removed");
                }
            }
        }
    }
}
