//! The folders of a new file.

use std::{
    fs::{self, File},
    io, mem,
    path::{Path, PathBuf},
};

/// The folders above a new file that were missing. Dropping the value removes those that are empty:
/// after a failure nothing is left, and the folders of a file that was made stay.
pub(crate) struct NewFolders(Vec<PathBuf>);

impl NewFolders {
    /// Finds the missing folders above a file, and makes none of them.
    pub(crate) fn above(file: &Path) -> NewFolders {
        let folders = file.ancestors().skip(1);
        let missing =
            folders.take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists());
        NewFolders(missing.map(Path::to_owned).collect())
    }

    /// Makes the missing folders. Each new folder is on the disk in the folder above it.
    pub(super) fn make(&mut self) -> io::Result<()> {
        for folder in mem::take(&mut self.0).into_iter().rev() {
            match fs::create_dir(&folder) {
                // Another command made it at the same time.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
                made => {
                    made?;
                    File::open(folder_of(&folder))?.sync_all()?;
                    self.0.insert(0, folder);
                }
            }
        }
        Ok(())
    }
}

impl Drop for NewFolders {
    fn drop(&mut self) {
        for folder in &self.0 {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// The folder of a file, or of a folder.
pub(super) fn folder_of(path: &Path) -> &Path {
    let named = |folder: &&Path| !folder.as_os_str().is_empty();
    path.parent().filter(named).unwrap_or(Path::new("."))
}
