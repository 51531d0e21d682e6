//! Known mistakes that are put into the nodes of rounds of faults, to prove that rounds find them.
//!
//! A defect is a patch in `tests/defects`. It is applied to a copy of the sources in the target
//! folder, so neither the checkout nor its own programs ever have it.

use std::{
    fs, io,
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

/// Builds `vvm` with a defect, and returns the path of the program.
pub(crate) fn build(name: &str) -> Result<PathBuf> {
    let root = folders::root()?;
    let known = names(&root)?;
    if !known.iter().any(|known| known == name) {
        return failed(format!("there is no defect `{name}`: {PATCHES} has {}", known.join(", ")));
    }
    let folder = cargo::target_folder()?.join("defects");
    let source = folder.join("source");
    copy_sources(&root, &source)?;
    let mut apply = Command::new("git");
    // Above the copy is a checkout. Inside of one, git would apply nothing to ignored files.
    apply.arg("apply").arg(patch(&root, name)).env("GIT_CEILING_DIRECTORIES", &folder);
    process::run(apply.current_dir(&source))?;
    let target = folder.join("target");
    let mut build = cargo(&["build", "--package", "vvm-cli", "--bin", "vvm", "--target-dir"])?;
    process::run(build.arg(&target).current_dir(&source))?;
    Ok(target.join("debug").join("vvm"))
}

/// Checks that all patches apply to the sources of the checkout.
pub(crate) fn check() -> Result<Vec<String>> {
    let root = folders::root()?;
    let mut violations = Vec::new();
    for name in names(&root)? {
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
        if from.is_file() {
            to.parent().map_or(Ok(()), fs::create_dir_all).context(to.display())?;
            fs::copy(&from, &to).context(to.display())?;
        }
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
        assert!(build("none").unwrap_err().to_string().contains("number_twice"));
    }
}
