//! Files that other users of the machine should not be able to read, or to write.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use rustix::process::geteuid;

const ALL_USERS: &str = "all users of this machine";
const GROUP_OF_FILE: &str = "the group of the file";

const STICKY: u32 = 0o1000;

/// Returns the users that can read a file without need; `None` if there are none, or if the file
/// cannot be looked at. Then reading the file fails, and that error is reported.
pub(crate) fn needless_readers(path: &Path) -> Option<&'static str> {
    let file = fs::metadata(path).ok()?;
    readers(file.mode(), file.uid() == geteuid().as_raw())
}

/// Users that can change what a file holds, and the command that ends it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NeedlessWriters {
    pub(crate) what: String,
    pub(crate) advice: String,
}

/// Returns the users that can write a file besides root and the user of this process, or that can
/// put another file in its place; `None` if there are none.
pub(crate) fn needless_writers(path: &Path) -> Option<NeedlessWriters> {
    let (file, found) = (path.display(), fs::metadata(path).ok()?);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let found_folder = fs::metadata(folder).ok()?;
    if let Some(writers) = writers(found.mode(), GROUP_OF_FILE) {
        return Some(NeedlessWriters {
            what: format!("{writers} can write {file}"),
            advice: format!("run `chmod go-w {file}`"),
        });
    }
    // In a folder with the sticky bit, only the owner of a file replaces the file.
    let mode = found_folder.mode();
    if let Some(writers) = writers(mode, "the group of the folder").filter(|_| mode & STICKY == 0) {
        return Some(NeedlessWriters {
            what: format!("{writers} can replace {file}"),
            advice: format!("run `chmod go-w {}`", folder.display()),
        });
    }
    let is_foreign = |user: u32| user != 0 && user != geteuid().as_raw();
    if is_foreign(found.uid()) {
        return Some(NeedlessWriters {
            what: format!("the user {} owns {file}, so this user can write it", found.uid()),
            advice: format!("run `chown root {file}`"),
        });
    }
    is_foreign(found_folder.uid()).then(|| NeedlessWriters {
        what: format!("the user {} owns the folder of {file}", found_folder.uid()),
        advice: format!("run `chown root {}`", folder.display()),
    })
}

/// Judges the mode of a file or of a folder by its writers.
fn writers(mode: u32, group: &'static str) -> Option<&'static str> {
    const GROUP: u32 = 0o020;
    const OTHERS: u32 = 0o002;
    match mode {
        mode if mode & OTHERS != 0 => Some(ALL_USERS),
        mode if mode & GROUP != 0 => Some(group),
        _ => None,
    }
}

/// Judges a mode. A file of another user, such as root, must be readable for the group of the node.
fn readers(mode: u32, is_own: bool) -> Option<&'static str> {
    const GROUP: u32 = 0o040;
    const OTHERS: u32 = 0o004;
    match () {
        () if mode & OTHERS != 0 => Some(ALL_USERS),
        () if mode & GROUP != 0 && is_own => Some(GROUP_OF_FILE),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_private_if_only_the_node_can_read_it() {
        for (mode, is_own, expected) in [
            (0o100_600, true, None),
            (0o100_400, true, None),
            (0o100_640, true, Some("the group of the file")),
            (0o100_644, true, Some("all users of this machine")),
            (0o100_604, true, Some("all users of this machine")),
            (0o100_640, false, None),
            (0o100_644, false, Some("all users of this machine")),
        ] {
            assert_eq!(readers(mode, is_own), expected, "{mode:o} {is_own}");
        }
    }
}
