//! Every crate takes the lints of the workspace.

use super::SourceFile;

/// Returns the manifests of crates without the lints of the workspace.
pub(super) fn check(files: &[SourceFile]) -> Vec<String> {
    let manifests = files.iter().filter(|file| file.path.ends_with("/Cargo.toml"));
    manifests
        .filter(|file| !inherits_lints(&file.text))
        .map(|file| format!("{}: `[lints] workspace = true` is missing", file.path))
        .collect()
}

fn inherits_lints(manifest: &str) -> bool {
    let lines = manifest.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>();
    lines.windows(2).any(|pair| pair == ["[lints]", "workspace = true"])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_crate_without_the_lints_is_found() {
        let files = [
            manifest("Cargo.toml", "[workspace]"),
            manifest(
                "crates/a/Cargo.toml",
                "[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n",
            ),
            manifest("crates/b/Cargo.toml", "[package]\nname = \"b\"\n"),
            manifest("crates/c/Cargo.toml", "[lints]\n[dependencies.x]\nworkspace = true\n"),
        ];
        let found = check(&files);
        assert_eq!(found.len(), 2);
        assert!(
            found[0].starts_with("crates/b/") && found[1].starts_with("crates/c/"),
            "{found:?}"
        );
    }
}
