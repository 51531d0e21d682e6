//! No file of the repository names a path of one machine or a place beside the checkout, or
//! contains an unfinished merge.

use super::SourceFile;

/// The forbidden words. Each word is broken so that this file does not contain it.
const FORBIDDEN: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("../sha", "red"),
    concat!("/Use", "rs/"),
    concat!("<<<<", "<<< "),
    concat!(">>>>", ">>> "),
];

/// Returns the lines that contain a forbidden word.
pub(super) fn check(files: &[SourceFile]) -> Vec<String> {
    files.iter().flat_map(check_file).collect()
}

fn check_file(file: &SourceFile) -> Vec<String> {
    let lines = file.text.lines().enumerate();
    lines
        .filter_map(|(i, line)| {
            let word = FORBIDDEN.iter().find(|word| line.contains(*word))?;
            Some(format!("{}:{}: `{word}` must not be in the repository", file.path, i + 1))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_one_machine_is_found_with_its_line() {
        let text = format!("fine\nsee {}main\n", FORBIDDEN[0]);
        let found = check(&[SourceFile { path: "README.md".to_owned(), text }]);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("README.md:2: "), "{found:?}");
    }
}
