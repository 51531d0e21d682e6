//! Known mistakes that are put into the nodes of rounds of faults, to prove that rounds find them.
//!
//! A defect is a patch in `tests/defects`. It is applied to a copy of the sources in the target
//! folder, so neither the checkout nor its own programs ever have it.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    cargo::{self, cargo},
    error::{ErrorContext, Result, failed},
    folders, process,
    tidy::git,
};

/// The folder of the patches, from the root of the checkout.
const PATCHES: &str = "tests/defects";

/// The list of the defects, from the root of the checkout.
const LIST: &str = "tests/defects/list.json";

/// A defect of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Defect {
    pub(crate) name: String,
    /// The check that must find the defect.
    pub(crate) check: String,
    /// The arguments of a run that finds the defect.
    pub(crate) arguments: Vec<String>,
}

/// Returns all defects of the list.
pub(crate) fn known() -> Result<Vec<Defect>> {
    let text = fs::read_to_string(folders::root()?.join(LIST)).context(LIST)?;
    defects_of(&text).map_or_else(|why| failed(format!("{LIST}: {why}")), Ok)
}

fn defects_of(list: &str) -> std::result::Result<Vec<Defect>, String> {
    let list: BTreeMap<String, BTreeMap<String, String>> =
        serde_json::from_str(list).map_err(|error| error.to_string())?;
    let defect = |(name, mut entry): (String, BTreeMap<String, String>)| {
        let mut take = |key| entry.remove(key).ok_or_else(|| format!("{name} has no `{key}`"));
        let (check, arguments) = (take("check")?, take("arguments")?);
        let arguments = arguments.split_whitespace().map(str::to_owned).collect();
        Ok(Defect { name, check, arguments })
    };
    list.into_iter().map(defect).collect()
}

/// Builds `vvm` with a defect, and returns the path of the program. Each defect has a program of
/// its own, so a later build replaces no program that a run still uses.
///
/// # Errors
/// If another command builds a defect: both would use one copy of the sources.
pub(crate) fn build(Defect { name, .. }: &Defect) -> Result<PathBuf> {
    let root = folders::root()?;
    let folder = cargo::target_folder()?.join("defects");
    let _lock = lock(&folder)?;
    let source = folder.join("source");
    copy_sources(&root, &source)?;
    let mut apply = Command::new("git");
    // Above the copy is a checkout. Inside of one, git would apply nothing to ignored files.
    apply.arg("apply").arg(patch(&root, name)).env("GIT_CEILING_DIRECTORIES", &folder);
    process::run(apply.current_dir(&source))?;
    let target = folder.join("target");
    let mut build = cargo(&["build", "--package", "vvm-cli", "--bin", "vvm", "--target-dir"])?;
    process::run(build.arg(&target).current_dir(&source))?;
    keep(&target.join("debug").join("vvm"), &folder.join(name))
}

/// Takes the lock of the folder of all defects, until the file is dropped.
fn lock(folder: &Path) -> Result<File> {
    fs::create_dir_all(folder).context(folder.display())?;
    let why = "another command builds a defect: wait until it has built it, and try again";
    folders::lock(&folder.join("lock"), why)
}

/// Copies a program into a folder, and returns its path there. The copy appears at once, even if a
/// run still uses an older one.
fn keep(program: &Path, folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder).context(folder.display())?;
    let (copy, kept) = (folder.join("vvm.new"), folder.join("vvm"));
    fs::copy(program, &copy).context(program.display())?;
    fs::rename(&copy, &kept).context(kept.display())?;
    Ok(kept)
}

/// Checks that all patches apply to the sources of the checkout, and that the list has them all.
pub(crate) fn check() -> Result<Vec<String>> {
    let root = folders::root()?;
    let mut violations = Vec::new();
    let (names, listed) = (names(&root)?, known()?);
    let listed: Vec<String> = listed.into_iter().map(|defect| defect.name).collect();
    if names != listed {
        violations.push(format!("{LIST} lists {listed:?}, and the patches are {names:?}"));
    }
    for name in names {
        let patch = patch(&root, &name);
        if git(&["apply", "--check", &patch.to_string_lossy()]).is_err() {
            let what = "the patch does not apply any more: put the defect into the new code";
            violations.push(format!("{PATCHES}/{name}.patch: {what}"));
        }
    }
    Ok(violations)
}

fn patch(root: &Path, name: &str) -> PathBuf {
    root.join(PATCHES).join(format!("{name}.patch"))
}

/// The names of all defects.
fn names(root: &Path) -> Result<Vec<String>> {
    let files = fs::read_dir(root.join(PATCHES)).context(PATCHES)?;
    let names: io::Result<Vec<String>> =
        files.map(|file| Ok(file?.file_name().to_string_lossy().into_owned())).collect();
    let names = names.context(PATCHES)?;
    let mut names: Vec<String> =
        names.iter().filter_map(|name| name.strip_suffix(".patch")).map(str::to_owned).collect();
    names.sort_unstable();
    Ok(names)
}

/// Copies all files that are committed or may be committed.
fn copy_sources(root: &Path, source: &Path) -> Result<()> {
    if source.exists() {
        fs::remove_dir_all(source).context(source.display())?;
    }
    let listed = git(&["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
    for path in listed.split_terminator('\0') {
        let (from, to) = (root.join(path), source.join(path));
        // Git also lists deleted files that are not committed yet.
        if !from.is_symlink() && !from.is_file() {
            continue;
        }
        to.parent().map_or(Ok(()), fs::create_dir_all).context(to.display())?;
        let copied = match fs::read_link(&from) {
            Ok(target) => symlink(target, &to),
            Err(_) => fs::copy(&from, &to).map(drop),
        };
        copied.context(to.display())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_the_sources_takes_each_defect() {
        let root = folders::root().unwrap();
        assert_eq!(check().unwrap(), [""; 0]);
        assert_eq!(names(&root).unwrap().len(), 5);
    }

    /// The copy had no links to folders, so no program could be built from it.
    #[test]
    fn a_copy_of_the_sources_has_the_links() {
        let folder = tempfile::tempdir().unwrap();
        copy_sources(&folders::root().unwrap(), folder.path()).unwrap();
        assert!(folder.path().join("bin/vvm/config/vvm.toml").is_file());
    }

    /// The second command replaced the sources under the compiler of the first one.
    #[test]
    fn one_defect_is_built_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let _first = lock(folder.path()).unwrap();
        assert!(lock(folder.path()).unwrap_err().to_string().contains("another command"));
    }

    #[test]
    fn the_list_says_how_to_find_a_defect() {
        let list = r#"{"hole": {"check": "logs", "arguments": "--minutes 1 --seed 1"}}"#;
        let [hole] = &defects_of(list).unwrap()[..] else { panic!() };
        assert_eq!((&*hole.name, &*hole.check), ("hole", "logs"));
        assert_eq!(hole.arguments, ["--minutes", "1", "--seed", "1"]);
        for (wrong, why) in [
            (r#"{"hole": {"arguments": ""}}"#, "hole has no `check`"),
            (r#"{"hole": {"check": "logs"}}"#, "hole has no `arguments`"),
            ("[]", "invalid type"),
        ] {
            assert!(defects_of(wrong).unwrap_err().contains(why), "{wrong}");
        }
    }

    /// The program of one defect replaced the program of another one during its run.
    #[test]
    fn each_defect_keeps_a_program_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let built = folder.path().join("built");
        let kept = ["one", "two"].map(|name| {
            fs::write(&built, name).unwrap();
            keep(&built, &folder.path().join(name)).unwrap()
        });
        assert_eq!(kept, ["one/vvm", "two/vvm"].map(|path| folder.path().join(path)));
        assert_eq!(kept.map(|path| fs::read_to_string(path).unwrap()), ["one", "two"]);
    }
}
