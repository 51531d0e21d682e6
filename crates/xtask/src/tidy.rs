//! `cargo xtask tidy`: the rules of the repository besides the tests. It changes nothing.

mod circles;
mod edges;
mod forbidden_words;
mod homes;
mod long_lines;
mod manifests;
mod named_tests;
mod names;
mod unused;

use std::{
    fs,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    cargo::{self, cargo},
    defects,
    error::{Error, ErrorContext, Result, failed},
    folders, process,
    steps::Steps,
};

/// A text file of the repository. The path is relative to the root of the repository.
struct SourceFile {
    path: String,
    text: String,
}

/// Runs all checks, the fast ones first, and prints the result of each.
pub(crate) fn tidy() -> Result<()> {
    let mut steps = Steps::default();
    let result = run_all(&mut steps);
    eprint!("\n{}", steps.summary());
    result
}

fn run_all(steps: &mut Steps) -> Result<()> {
    run_quick_steps(steps)?;
    for (name, mut command) in compiling()? {
        steps.run(name, || process::run(&mut command))?;
    }
    Ok(())
}

/// Returns the names and the commands of the checks that compile the workspace.
pub(crate) fn compiling() -> Result<[(&'static str, Command); 2]> {
    let clippy = cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    let mut documentation = cargo(&["doc", "--workspace", "--no-deps"])?;
    documentation.env("RUSTDOCFLAGS", "-D warnings");
    Ok([("clippy", clippy), ("build the documentation", documentation)])
}

/// Runs the checks that compile nothing as the first steps of a longer command.
pub(crate) fn run_quick_steps(steps: &mut Steps) -> Result<()> {
    steps.run("check the house rules", check_house_rules)?;
    steps.run("check the format", || cargo::run(&["fmt", "--all", "--check"]))?;
    let dependencies = "check the dependencies";
    if cargo_deny_is_installed() {
        let check = ["deny", "check", "--hide-inclusion-graph", "bans", "licenses", "sources"];
        steps.run(dependencies, || cargo::run(&check))?;
    } else {
        steps.skip(
            dependencies,
            "cargo-deny is not installed: run `cargo install --locked cargo-deny`",
        );
    }
    steps.run("package the crates", || {
        // The packages are assembled, and not built again: that would take minutes.
        let package = ["package", "--workspace", "--no-verify", "--offline", "--allow-dirty"];
        let mut command = cargo(&package)?;
        command.args(["--no-metadata", "--quiet"]);
        // A crate that is not published may depend on another such crate. No registry has that
        // other crate, so cargo cannot package the first one.
        for name in unpublished(&cargo::workspace_packages()?) {
            command.args(["--exclude", name]);
        }
        process::run(&mut command)
    })
}

/// Returns the names of the packages that say `publish = false`.
fn unpublished(packages: &[Value]) -> impl Iterator<Item = &str> {
    let packages = packages.iter().filter(|package| package["publish"] == json!([]));
    packages.filter_map(|package| package["name"].as_str())
}

fn check_house_rules() -> Result<()> {
    let packages = cargo::workspace_packages()?;
    let packages = packages.iter().map(edges::Package::read).collect::<Option<Vec<_>>>();
    let packages = packages.ok_or_else(|| {
        Error::Failed("the output of cargo metadata has an unknown form".to_owned())
    })?;
    let files = source_files()?;
    let mut violations = edges::check(&packages);
    violations.extend(unused::check(&files, &packages));
    violations.extend(manifests::check(&files));
    violations.extend(homes::check(&files));
    violations.extend(circles::check(&files));
    violations.extend(named_tests::check(&files));
    violations.extend(names::check(&files, &packages));
    violations.extend(forbidden_words::check(&files));
    violations.extend(long_lines::check(&files));
    violations.extend(defects::check()?);
    if violations.is_empty() {
        return Ok(());
    }
    failed(format!("files break the house rules:\n  {}", violations.join("\n  ")))
}

/// Returns the output of a git command.
pub(crate) fn git(arguments: &[&str]) -> Result<String> {
    let mut command = Command::new("git");
    // On some build machines the checkout belongs to another user. Git reads it with this option.
    command.args(["-c", "safe.directory=*"]).args(arguments).current_dir(folders::root()?);
    let output = command.stderr(Stdio::inherit()).output().context("cannot run git")?;
    if !output.status.success() {
        return failed(format!("git {} failed", arguments.join(" ")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns all text files that are committed or may be committed.
fn source_files() -> Result<Vec<SourceFile>> {
    let root = folders::root()?;
    let listed = git(&["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
    let mut files = Vec::new();
    for path in listed.split_terminator('\0') {
        // Files that cannot be read as text are skipped: git also lists deleted files that are not
        // committed yet, and pictures.
        if let Ok(text) = fs::read_to_string(root.join(path)) {
            files.push(SourceFile { path: path.to_owned(), text });
        }
    }
    Ok(files)
}

/// Returns whether the tool is installed that checks licences, sources and bans.
fn cargo_deny_is_installed() -> bool {
    let mut deny = Command::new("cargo-deny");
    deny.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    deny.status().is_ok_and(|status| status.success())
}

/// Formats the code, and applies the corrections that clippy can make.
pub(crate) fn fix() -> Result<()> {
    cargo::run(&[
        "clippy",
        "--fix",
        "--allow-dirty",
        "--allow-staged",
        "--workspace",
        "--all-targets",
    ])?;
    cargo::run(&["fmt", "--all"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_that_is_not_published_is_found() {
        let packages = [
            json!({ "name": "a", "publish": null }),
            json!({ "name": "b", "publish": [] }),
            json!({ "name": "c", "publish": ["registry"] }),
        ];
        assert_eq!(unpublished(&packages).collect::<Vec<_>>(), ["b"]);
    }
}
