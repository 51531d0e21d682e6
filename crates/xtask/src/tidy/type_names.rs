//! A public type name has one meaning: two crates do not use the same name.

use std::collections::BTreeMap;

use super::SourceFile;

/// Names that several crates may use, each with the reason.
const SHARED: &[(&str, &str)] = &[
    ("Error", "each crate has one error type, and users name the crate: `eventlog::Error`"),
    ("Result", "the result with the crate's error type, as in the standard library"),
    ("Epoch", "`eventlog` and `ielections` do not depend on each other; `vvm` converts"),
    ("Offset", "`eventlog` and `isequencer` do not depend on each other; `seqstorage` converts"),
    ("WsId", "`eventlog`, `isequencer` and `docnumbers` do not depend on each other"),
];

const KEYWORDS: &[&str] = &["struct", "enum", "trait", "type", "union"];

/// Returns the public type names that several crates use, and the exceptions that are not needed.
pub(super) fn check(files: &[SourceFile]) -> Vec<String> {
    check_with(files, SHARED)
}

fn check_with(files: &[SourceFile], shared: &[(&str, &str)]) -> Vec<String> {
    let mut crates_of: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for file in files {
        let Some(name) = crate_of(&file.path) else { continue };
        for type_name in public_types(&file.text) {
            let crates = crates_of.entry(type_name).or_default();
            if !crates.contains(&name) {
                crates.push(name);
            }
        }
    }
    let is_shared = |name: &str| shared.iter().any(|(shared, _)| *shared == name);
    let mut violations = Vec::new();
    for (name, crates) in &crates_of {
        if crates.len() > 1 && !is_shared(name) {
            let crates = crates.join(", ");
            violations.push(format!(
                "the public type name {name} is used by {crates}: rename all but one, or give a \
                 reason in tidy/type_names.rs"
            ));
        }
    }
    for (name, _) in shared {
        if crates_of.get(name).is_none_or(|crates| crates.len() < 2) {
            violations
                .push(format!("{name} is not shared: take it off the list in tidy/type_names.rs"));
        }
    }
    violations
}

/// Returns the crate of a source file. Tests, examples and benches do not count.
fn crate_of(path: &str) -> Option<&str> {
    let (name, rest) = path.strip_prefix("crates/")?.split_once('/')?;
    let is_source = rest.starts_with("src/") && rest.ends_with(".rs");
    (is_source && !rest.ends_with("tests.rs") && !rest.contains("/tests/")).then_some(name)
}

/// Returns the names of the types that a file declares as `pub`, up to its tests.
fn public_types(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().map(str::trim_start).take_while(|line| *line != "#[cfg(test)]");
    lines.filter_map(|line| {
        let (keyword, rest) = line.strip_prefix("pub ")?.split_once(' ')?;
        let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
        KEYWORDS.contains(&keyword).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_name_of_two_crates_is_found() {
        let files = [
            file("crates/a/src/lib.rs", "pub struct Row<T>(T);\npub(crate) enum Step {}"),
            file("crates/b/src/x.rs", "    pub enum Row {\n}\npub trait Step: Sized {}"),
            file("crates/b/src/tests.rs", "pub struct Step;"),
            file("crates/c/src/lib.rs", "#[cfg(test)]\npub struct Step;"),
        ];
        let found = check_with(&files, &[]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("Row is used by a, b"), "{found:?}");
        assert!(check_with(&files, &[("Row", "a reason")]).is_empty());
    }

    #[test]
    fn an_exception_that_is_not_needed_is_found() {
        let files = [file("crates/a/src/lib.rs", "pub struct Row;")];
        assert_eq!(check_with(&files, &[("Row", "a reason")]).len(), 1);
    }
}
