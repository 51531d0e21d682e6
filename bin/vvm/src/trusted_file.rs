//! Files that only root and the user of the node should be able to write, or to replace.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{self, Component, Path, PathBuf},
};

use ctl::private_file::{ALL_USERS, GROUP_OF_FILE};
use rustix::process::geteuid;

const STICKY: u32 = 0o1000;

/// The most links in a path, as Linux has it.
const MOST_LINKS: u32 = 40;

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
/// Another file can be put in its place in each folder that the path leads through, including the
/// folders that links lead to. A simpler version looks at the last folder only: the writers of a
/// folder above rename it, and make another one with the file that they want.
pub(crate) fn needless_writers(file: &Path) -> Option<NeedlessWriters> {
    let places = places(file).ok()?;
    let own = geteuid().as_raw();
    // The place nearest to the file comes first.
    places.iter().rev().find_map(|place| place.needless_writers(file, own))
}

/// A file, a folder or a link that decides which bytes are read under a path.
#[derive(Clone, Debug)]
struct Place {
    path: PathBuf,
    kind: PlaceKind,
    mode: u32,
    owner: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlaceKind {
    File,
    Folder,
    /// The owner of a link can replace it in a folder with the sticky bit. In any other folder only
    /// the writers of the folder can.
    Link {
        is_in_sticky: bool,
    },
    /// A pipe or a device.
    Other,
}

impl Place {
    fn find(path: PathBuf) -> io::Result<Place> {
        let found = fs::symlink_metadata(&path)?;
        let kind = match found.file_type() {
            kind if kind.is_file() => PlaceKind::File,
            kind if kind.is_dir() => PlaceKind::Folder,
            kind if kind.is_symlink() => PlaceKind::Link { is_in_sticky: false },
            _ => PlaceKind::Other,
        };
        Ok(Place { path, kind, mode: found.mode(), owner: found.uid() })
    }

    fn is_sticky(&self) -> bool {
        self.mode & STICKY != 0
    }

    /// Judges the place. `file` is the path that leads through the place, and `own` is the user of
    /// the node.
    fn needless_writers(&self, file: &Path, own: u32) -> Option<NeedlessWriters> {
        let (file, place, owner) = (file.display(), self.path.display(), self.owner);
        let is_foreign = owner != 0 && owner != own;
        let (what, advice) = match self.kind {
            PlaceKind::File => match writers(self.mode, GROUP_OF_FILE) {
                Some(writers) => {
                    (format!("{writers} can write {file}"), format!("run `chmod go-w {file}`"))
                }
                None if is_foreign => (
                    format!("the user {owner} owns {file}, so this user can write it"),
                    format!("run `chown root {file}`"),
                ),
                None => return None,
            },
            // In a folder with the sticky bit, only the owner of a file replaces the file.
            PlaceKind::Folder => {
                let writers = writers(self.mode, "the group of the folder");
                match writers.filter(|_| !self.is_sticky()) {
                    Some(writers) => (
                        format!("{writers} can replace {file} through the folder {place}"),
                        format!("run `chmod go-w {place}`, or move the file to another folder"),
                    ),
                    None if is_foreign => (
                        format!("the user {owner} owns the folder {place}, and can replace {file}"),
                        // The folder may be the home of that user.
                        "move the file to a folder of root, or of the user of the node".to_owned(),
                    ),
                    None => return None,
                }
            }
            PlaceKind::Link { is_in_sticky: true } if is_foreign => (
                format!("the user {owner} owns the link {place}, and can replace {file}"),
                format!("run `chown -h root {place}`"),
            ),
            PlaceKind::Link { .. } | PlaceKind::Other => return None,
        };
        Some(NeedlessWriters { what, advice })
    }
}

/// Returns all places that a path leads through, from the root on.
fn places(path: &Path) -> io::Result<Vec<Place>> {
    let mut at = Place::find(PathBuf::from("/"))?;
    let (mut places, mut links) = (vec![at.clone()], 0);
    let mut rest = parts(&path::absolute(path)?);
    while let Some(part) = rest.pop() {
        if part == ".." {
            at = Place::find(at.path.parent().unwrap_or(&at.path).to_owned())?;
            continue;
        }
        let mut place = Place::find(at.path.join(part))?;
        if let PlaceKind::Link { is_in_sticky } = &mut place.kind {
            *is_in_sticky = at.is_sticky();
            links += 1;
            if links > MOST_LINKS {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let target = fs::read_link(&place.path)?;
            if target.is_absolute() {
                at = Place::find(PathBuf::from("/"))?;
            }
            rest.extend(parts(&target));
        } else {
            at = place.clone();
        }
        places.push(place);
    }
    Ok(places)
}

/// Returns the parts of a path, the last one first.
fn parts(path: &Path) -> Vec<OsString> {
    let part = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    };
    path.components().rev().filter_map(part).collect()
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
    fn each_folder_that_the_path_leads_through_counts() {
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
        for unread in ["own/loop", "own/none", "open/inner/keys/none"] {
            assert_eq!(needless_writers(&at(unread)), None, "{unread}");
        }
    }

    #[test]
    fn a_link_knows_whether_its_folder_is_sticky() {
        let folder = tempfile::tempdir().unwrap();
        for (mode, is_in_sticky) in [(0o1777, true), (0o755, false)] {
            let here = folder.path().join(format!("{mode:o}"));
            fs::create_dir(&here).unwrap();
            fs::set_permissions(&here, fs::Permissions::from_mode(mode)).unwrap();
            symlink("/", here.join("link")).unwrap();
            let found = places(&here.join("link")).unwrap();
            let is_right = |place: &Place| place.kind == PlaceKind::Link { is_in_sticky };
            assert!(found.iter().any(is_right), "{mode:o}: {found:?}");
        }
    }

    #[test]
    fn only_root_and_the_user_of_the_node_may_own_a_place() {
        use PlaceKind::{File, Folder, Link, Other};
        const OWN: u32 = 7;
        let [plain, in_sticky] = [false, true].map(|is_in_sticky| Link { is_in_sticky });
        for (kind, mode, is_risk_of_others) in [
            (File, 0o100_644, true),
            (Folder, 0o40_755, true),
            (Folder, 0o41_777, true),
            (in_sticky, 0o120_777, true),
            (plain, 0o120_777, false),
            (Other, 0o20_666, false),
        ] {
            for (owner, is_risk) in [(0, false), (OWN, false), (8, is_risk_of_others)] {
                let place = Place { path: PathBuf::from("/srv"), kind, mode, owner };
                let found = place.needless_writers(Path::new("/srv/keys"), OWN);
                assert_eq!(found.is_some(), is_risk, "{place:?}: {found:?}");
                let is_named = |found: NeedlessWriters| found.what.contains("the user 8 owns");
                assert!(found.is_none_or(is_named), "{place:?}");
            }
        }
    }
}
