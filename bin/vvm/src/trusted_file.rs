//! Files that only root and the user of the node should be able to write, or to replace.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{self, Path, PathBuf},
};

use ctl::private_file::{ALL_USERS, GROUP_OF_FILE};
use rustix::process::geteuid;

const STICKY: u32 = 0o1000;

/// Users that can change what a file holds, and the command that ends it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NeedlessWriters {
    pub(crate) what: String,
    pub(crate) advice: String,
}

/// Returns the users that can write a file besides root and the user of this process, or that can
/// put another file in its place; `None` if there are none, or if the file cannot be looked at.
/// Then reading the file fails, and that error is reported.
///
/// Another file can be put in its place in each folder above it: above the path, and above the file
/// behind its links. A simpler version looks at the last folder only: the writers of a folder above
/// rename it, and make another one with the file that they want.
pub(crate) fn needless_writers(file: &Path) -> Option<NeedlessWriters> {
    let own = geteuid().as_raw();
    places(file).ok()?.iter().find_map(|place| place.needless_writers(file, own))
}

/// A file or a folder that decides which bytes are read under a path.
#[derive(Clone, Debug)]
struct Place {
    path: PathBuf,
    is_folder: bool,
    mode: u32,
    owner: u32,
}

impl Place {
    fn find(path: &Path) -> io::Result<Place> {
        let found = fs::metadata(path)?;
        let (mode, owner) = (found.mode(), found.uid());
        Ok(Place { path: path.to_owned(), is_folder: found.is_dir(), mode, owner })
    }

    /// Judges the place. `file` is the path that leads through the place, and `own` is the user of
    /// the node.
    fn needless_writers(&self, file: &Path, own: u32) -> Option<NeedlessWriters> {
        let (file, place, owner) = (file.display(), self.path.display(), self.owner);
        let is_foreign = owner != 0 && owner != own;
        // In a folder with the sticky bit, only the owner of a file replaces the file.
        let is_sticky = self.is_folder && self.mode & STICKY != 0;
        let group = if self.is_folder { "the group of the folder" } else { GROUP_OF_FILE };
        let writers = writers(self.mode, group).filter(|_| !is_sticky);
        let (what, advice) = match (writers, self.is_folder) {
            (Some(writers), false) => {
                (format!("{writers} can write {file}"), format!("run `chmod go-w {file}`"))
            }
            (Some(writers), true) => (
                format!("{writers} can replace {file} through the folder {place}"),
                format!("run `chmod go-w {place}`, or move the file to another folder"),
            ),
            (None, _) if !is_foreign => return None,
            (None, false) => (
                format!("the user {owner} owns {file}, so this user can write it"),
                format!("run `chown root {file}`"),
            ),
            (None, true) => (
                format!("the user {owner} owns the folder {place}, and can replace {file}"),
                // The folder may be the home of that user.
                "move the file to a folder of root, or of the user of the node".to_owned(),
            ),
        };
        Some(NeedlessWriters { what, advice })
    }
}

/// Returns the file and the folders above it, the nearest one first, and then the folders above the
/// path that is given.
fn places(path: &Path) -> io::Result<Vec<Place>> {
    let file = fs::canonicalize(path)?;
    let named = path::absolute(path)?;
    // The mode of a pipe or a device says nothing about its bytes.
    let skipped = usize::from(!fs::metadata(&file)?.is_file());
    let all = file.ancestors().skip(skipped).chain(named.ancestors().skip(1));
    all.map(Place::find).collect()
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// Only the last folder of the given path was looked at, before links were followed.
    #[test]
    fn each_folder_above_the_path_and_above_the_file_counts() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let set_mode = |name: &str, mode| {
            fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        fs::create_dir_all(at("open/inner")).unwrap();
        fs::create_dir(at("own")).unwrap();
        fs::write(at("open/inner/keys"), "").unwrap();
        set_mode("open/inner/keys", 0o644);
        ["own", "open/inner"].into_iter().for_each(|folder| set_mode(folder, 0o755));
        symlink("../open/inner/keys", at("own/relative")).unwrap();
        symlink(at("open/inner"), at("own/folder")).unwrap();
        symlink(at("own/relative"), at("open/again")).unwrap();
        symlink("loop", at("own/loop")).unwrap();
        let paths =
            ["open/inner/keys", "own/relative", "own/folder/keys", "own/../open/again"].map(at);
        for (mode, writers) in [
            (0o755, None),
            (0o1777, None),
            (0o777, Some("all users of this machine can replace")),
            (0o775, Some("the group of the folder can replace")),
        ] {
            set_mode("open", mode);
            let open = at("open");
            for path in &paths {
                let found = needless_writers(path);
                assert_eq!(found.is_some(), writers.is_some(), "{mode:o} {path:?}: {found:?}");
                let (Some(found), Some(writers)) = (found, writers) else { continue };
                let expected =
                    format!("{writers} {} through the folder {}", path.display(), open.display());
                assert_eq!(found.what, expected);
                let command = format!("run `chmod go-w {}`", open.display());
                assert!(found.advice.starts_with(&command), "{found:?}");
            }
        }
        // A link to a folder is replaced in its own folder.
        fs::create_dir(at("shared")).unwrap();
        symlink(at("own"), at("shared/link")).unwrap();
        fs::write(at("own/keys"), "").unwrap();
        set_mode("own/keys", 0o644);
        set_mode("shared", 0o777);
        let found = needless_writers(&at("shared/link/keys")).unwrap();
        assert!(found.what.ends_with(&format!("the folder {}", at("shared").display())));
        for unread in ["own/loop", "own/none", "open/inner/keys/none"] {
            assert_eq!(needless_writers(&at(unread)), None, "{unread}");
        }
    }

    #[test]
    fn only_root_and_the_user_of_the_node_may_own_a_place() {
        const OWN: u32 = 7;
        for (is_folder, mode) in [(false, 0o100_644), (true, 0o40_755), (true, 0o41_777)] {
            for (owner, is_risk) in [(0, false), (OWN, false), (8, true)] {
                let place = Place { path: PathBuf::from("/srv"), is_folder, mode, owner };
                let found = place.needless_writers(Path::new("/srv/keys"), OWN);
                assert_eq!(found.is_some(), is_risk, "{place:?}: {found:?}");
                let is_named = |found: NeedlessWriters| found.what.contains("the user 8 owns");
                assert!(found.is_none_or(is_named), "{place:?}");
            }
        }
    }
}
