//! The files, crates, functions and types that ARCHITECTURE.md names exist.

use super::{SourceFile, edges::Package};

const MAP: &str = "ARCHITECTURE.md";

/// Returns paths and crates that the map names in backticks and that do not exist.
pub(super) fn check(files: &[SourceFile], packages: &[Package]) -> Vec<String> {
    let Some(map) = files.iter().find(|file| file.path == MAP) else {
        return Vec::new();
    };
    let names = packages.iter().map(|package| package.name.as_str()).collect::<Vec<_>>();
    let paths = files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>();
    let words = quoted_words(&map.text);
    let missing = words.filter(|word| !exists(word, &names, &paths));
    let mut found: Vec<String> =
        missing.map(|word| format!("{MAP} names `{word}`, which does not exist")).collect();
    for (path, name) in named_items(&map.text) {
        let part = format!("/{path}");
        let mut named = files.iter().filter(|file| format!("/{}", file.path).ends_with(&part));
        if !named.any(|file| defines(&file.text, name)) {
            found.push(format!("{MAP} names `{name}` of {path}, which does not define it"));
        }
    }
    found
}

/// Returns the files in backticks with the functions and types that follow in parentheses, as in
/// `file.rs` (`Type::function`, `Type`).
fn named_items(text: &str) -> Vec<(&str, &str)> {
    let (mut items, mut before) = (Vec::new(), "");
    for piece in text.split("` (`") {
        if let Some(path) = before.rsplit('`').next().filter(|path| path.ends_with(".rs")) {
            let names = piece.split(')').next().unwrap_or_default();
            items.extend(names.split(", ").map(|name| (path, name.trim_matches('`'))));
        }
        before = piece;
    }
    items
}

/// Returns whether a file defines a function or a type. A function with a type before it must be in
/// a block of that type: after a line that begins with `impl` or `pub trait` and names the type,
/// and before the next such line.
fn defines(text: &str, name: &str) -> bool {
    const KINDS: [&str; 5] = ["fn", "struct", "enum", "trait", "const"];
    let (owner, item) = name.rsplit_once("::").unwrap_or(("", name));
    let mut is_in_block = owner.is_empty();
    text.lines().any(|line| {
        let begins_block = ["impl", "pub trait", "trait"].iter().any(|word| line.starts_with(word));
        if begins_block && !owner.is_empty() {
            is_in_block = words(line).any(|word| word == owner);
        }
        let mut pairs = words(line).zip(words(line).skip(1));
        is_in_block && pairs.any(|(kind, defined)| KINDS.contains(&kind) && defined == item)
    })
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Returns the words in backticks, without blocks of code.
fn quoted_words(text: &str) -> impl Iterator<Item = &str> {
    // Every other piece between fences is code, and every other piece between backticks is quoted.
    text.split("```").step_by(2).flat_map(|prose| prose.split('`').skip(1).step_by(2))
}

/// Returns whether a word names something that exists. Only words that look like a path or a crate
/// of ours are checked: other words may name anything.
fn exists(word: &str, packages: &[&str], paths: &[&str]) -> bool {
    if looks_like_a_path(word) {
        // A path may leave out its beginning. A folder exists if it contains a file.
        let part = format!("/{}/", word.trim_end_matches('/'));
        return paths.iter().any(|path| format!("/{path}/").contains(&part));
    }
    let looks_like_a_crate = word.starts_with("istorage") || word.starts_with("vvm-");
    !looks_like_a_crate || word.contains("::") || packages.contains(&word)
}

fn looks_like_a_path(word: &str) -> bool {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let ends = [".rs", ".toml", ".md", ".yaml", ".xml"];
    let starts = ["src/", "crates/", "bin/", "tests/", "docs/", "config/"];
    word.chars().all(is_path)
        && (ends.iter().any(|end| word.ends_with(end))
            || starts.iter().any(|start| word.starts_with(start)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_named_file_or_crate_that_does_not_exist_is_found() {
        let package = Package::read(&json!({ "name": "istorage", "dependencies": [] }));
        let map = "`istorage` (`crates/istorage/src/mem/`, `src/mem`, `driver.rs`, \
                   `istorage::Error`) and `cargo xtask`.\n```\nbin/none.rs `x`\n```\n\
                   `istorage-none` `crates/none` `src/me` `docs/none.md` `mem.rs`";
        let file =
            |path: &str, text: &str| SourceFile { path: path.to_owned(), text: text.to_owned() };
        let files = [
            file(MAP, map),
            file("crates/istorage/src/mem/rows.rs", ""),
            file("crates/istorage/src/driver.rs", ""),
        ];
        let found = check(&files, &[package.unwrap()]);
        let names = found.iter().filter_map(|text| text.split('`').nth(1)).collect::<Vec<_>>();
        assert_eq!(names, ["istorage-none", "crates/none", "src/me", "docs/none.md", "mem.rs"]);
        assert!(check(&files[1..], &[]).is_empty(), "no map, nothing to check");
    }

    #[test]
    fn a_named_function_or_type_that_its_file_does_not_define_is_found() {
        let file =
            |path: &str, text: &str| SourceFile { path: path.to_owned(), text: text.to_owned() };
        let map = "`a.rs` (`A`, `A::good`, `A::gone`, `A::of_c`); \
                   `x/b.rs` (`B::good`), `a.rs` (see `other`)";
        let a =
            "struct A;\nimpl A { async fn good<T>() { gone() } }\nimpl C {\n    fn of_c() {}\n}";
        let files = [file(MAP, map), file("x/a.rs", a), file("x/b.rs", "fn good() {}")];
        let found = check(&files, &[]);
        assert_eq!(
            found,
            [
                "ARCHITECTURE.md names `A::gone` of a.rs, which does not define it",
                "ARCHITECTURE.md names `A::of_c` of a.rs, which does not define it",
                "ARCHITECTURE.md names `B::good` of x/b.rs, which does not define it",
            ]
        );
    }
}
