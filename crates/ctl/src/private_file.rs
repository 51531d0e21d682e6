//! Files that other users of the machine should not be able to read.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use rustix::process::geteuid;

/// The words for all users.
pub const ALL_USERS: &str = "all users of this machine";
/// The words for the group of a file.
pub const GROUP_OF_FILE: &str = "the group of the file";

/// Returns the users that can read a file without need; `None` if there are none, or if the file
/// cannot be looked at. Then reading the file fails, and that error is reported.
pub fn needless_readers(path: &Path) -> Option<&'static str> {
    let file = fs::metadata(path).ok()?;
    readers(file.mode(), file.uid() == geteuid().as_raw())
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
