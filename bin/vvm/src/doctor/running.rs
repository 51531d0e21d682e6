//! The processes of the machine, as `/proc` shows them.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use ielections::LockFile;

/// A process.
pub(super) struct RunningProcess {
    pub(super) name: String,
    folder: PathBuf,
}

/// Returns the processes that this one may see.
pub(super) fn processes() -> impl Iterator<Item = RunningProcess> {
    let folders = fs::read_dir("/proc").into_iter().flatten().flatten();
    folders.filter_map(|folder| {
        folder.file_name().to_str()?.parse::<u32>().ok()?;
        let name = fs::read_to_string(folder.path().join("comm")).ok()?.trim_end().to_owned();
        Some(RunningProcess { name, folder: folder.path() })
    })
}

/// Whether a node works in a folder: a process has its lock open. The lock is not opened here. The
/// answer is also `false` if this process may not look.
pub(super) fn node_works_in(folder: &Path) -> bool {
    let lock = folder.join(LockFile::NAME);
    let identity = |file: &Path| fs::metadata(file).map(|found| (found.dev(), found.ino())).ok();
    let Some(wanted) = identity(&lock) else { return false };
    // A look at a file on a network may hang, so only files of this name are looked at.
    let is_named =
        |open: &PathBuf| fs::read_link(open).is_ok_and(|to| to.file_name() == lock.file_name());
    processes().any(|process| {
        let files = fs::read_dir(process.folder.join("fd")).into_iter().flatten().flatten();
        let mut files = files.map(|file| file.path()).filter(is_named);
        files.any(|open| identity(&open) == Some(wanted))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_has_its_lock_open_is_found() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!node_works_in(folder.path()));
        let lock = fs::File::create(folder.path().join(LockFile::NAME)).unwrap();
        assert!(node_works_in(folder.path()));
        drop(lock);
        assert!(!node_works_in(folder.path()));
    }
}
