//! The sources of a crate name each dependency of the crate.

use super::{
    SourceFile,
    edges::{Dependency, Package},
};

/// Dependencies that no source names: the crate, the dependency, and the reason.
const UNNAMED: &[(&str, &str, &str)] = &[
    ("ctl", "base64", "a unit test has a module of the suites of bin/vvm"),
    ("ctl", "sha2", "a unit test has a module of the suites of bin/vvm"),
];

/// Returns the dependencies that nothing uses, and the exceptions that are not needed.
pub(super) fn check(files: &[SourceFile], packages: &[Package]) -> Vec<String> {
    check_with(files, packages, UNNAMED)
}

fn check_with(
    files: &[SourceFile],
    packages: &[Package],
    unnamed: &[(&str, &str, &str)],
) -> Vec<String> {
    let mut violations = Vec::new();
    for Package { name, dependencies } in packages {
        let beginning = format!("[package]\nname = \"{name}\"\n");
        let Some(manifest) = files.iter().find(|file| file.text.starts_with(&beginning)) else {
            violations.push(format!("no manifest begins with the name of {name}"));
            continue;
        };
        let folder = manifest.path.trim_end_matches("Cargo.toml");
        // The example of a README is a test.
        let is_source = |path: &str| {
            path.strip_prefix(folder)
                .is_some_and(|path| path.ends_with(".rs") || path == "README.md")
        };
        let sources: Vec<_> = files.iter().filter(|file| is_source(&file.path)).collect();
        for Dependency { name: to, name_in_sources, .. } in dependencies {
            let is_named = sources.iter().any(|file| names(&file.text, name_in_sources));
            match (is_named, unnamed.iter().any(|(from, other, _)| from == name && other == to)) {
                (false, false) => violations.push(format!(
                    "the sources of {name} do not name {to}: remove the dependency, or give a \
                     reason in tidy/unused.rs"
                )),
                (true, true) => violations.push(format!(
                    "the sources of {name} name {to}: take it off the list in tidy/unused.rs"
                )),
                _ => {}
            }
        }
    }
    violations
}

/// Returns whether a source contains a path that begins with a crate, as `tokio::spawn`.
fn names(source: &str, dependency: &str) -> bool {
    let path = format!("{dependency}::");
    source.match_indices(&path).any(|(at, _)| {
        let before = source[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':')
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_dependency_that_no_source_names_is_found() {
        let package = json!({
            "name": "a",
            "dependencies": [{ "name": "tokio-util" }, { "name": "a-serde", "rename": "serde" }],
        });
        let packages = [Package::read(&package).unwrap()];
        let found = |path: &str, text: &str, unnamed: &[(&str, &str, &str)]| {
            let file = |path: &str, text: &str| SourceFile {
                path: path.to_owned(),
                text: text.to_owned(),
            };
            let manifest = "[package]\nname = \"a\"\n[[bin]]\nname = \"b\"\n";
            let files = [file("crates/a/Cargo.toml", manifest), file(path, text)];
            check_with(&files, &packages, unnamed).len()
        };
        let source = "use serde::Serialize;\nfn a() { tokio_util::b() }";
        assert_eq!(found("crates/a/src/lib.rs", source, &[]), 0);
        assert_eq!(found("crates/a/tests/b.rs", source, &[]), 0);
        assert_eq!(found("crates/ab/src/lib.rs", source, &[]), 2);
        assert_eq!(found("crates/a/src/lib.rs", "use my_serde::x; // serde, b::serde::c", &[]), 2);
        let exception = [("a", "a-serde", "a reason")];
        assert_eq!(found("crates/a/src/lib.rs", "tokio_util::x", &exception), 0);
        assert_eq!(found("crates/a/src/lib.rs", source, &exception), 1);
    }
}
