//! Files stay small enough to be read. A file that is too long today may only become shorter.

use super::SourceFile;

const LINES_MAX: usize = 500;
/// A file that contains only tests may be longer.
const TEST_LINES_MAX: usize = 700;

/// Files that are longer, and their allowed lengths. A length goes down or the entry goes away, and
/// no entry is added.
const LONGER: &[(&str, usize)] = &[];

/// Returns the source files that are too long, and the exceptions that are no longer needed.
pub(super) fn check(files: &[SourceFile]) -> Vec<String> {
    check_with(files, LONGER)
}

fn check_with(files: &[SourceFile], longer: &[(&str, usize)]) -> Vec<String> {
    let sources = files.iter().filter(|file| file.path.ends_with(".rs"));
    sources.filter_map(|file| check_file(file, longer)).collect()
}

fn check_file(file: &SourceFile, longer: &[(&str, usize)]) -> Option<String> {
    let lines = file.text.lines().count();
    let exception = longer.iter().find(|(path, _)| *path == file.path).map(|(_, lines)| *lines);
    let path = &file.path;
    let is_test = path.ends_with("tests.rs") || format!("/{path}").contains("/tests/");
    let max = if is_test { TEST_LINES_MAX } else { LINES_MAX };
    match exception {
        None if lines > max => Some(format!("{path} has {lines} lines, more than {max}")),
        Some(allowed) if lines > allowed => {
            Some(format!("{path} has {lines} lines, more than the allowed {allowed}"))
        }
        Some(_) if lines <= max => {
            Some(format!("{path} is short enough: remove it from the list in tidy/sizes.rs"))
        }
        Some(allowed) if lines < allowed => {
            Some(format!("{path} is shorter: lower its entry in tidy/sizes.rs to {lines}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations(lines: usize, longer: &[(&str, usize)]) -> usize {
        check_with(&[SourceFile { path: "a.rs".to_owned(), text: "x\n".repeat(lines) }], longer)
            .len()
    }

    #[test]
    fn a_long_file_is_found() {
        assert_eq!(violations(LINES_MAX, &[]), 0);
        assert_eq!(violations(LINES_MAX + 1, &[]), 1);
    }

    #[test]
    fn a_file_of_tests_may_be_longer() {
        let file = |path: &str| SourceFile { path: path.to_owned(), text: "x\n".repeat(501) };
        assert_eq!(check_with(&[file("a/src/tests.rs"), file("tests/a.rs")], &[]), [""; 0]);
        assert_eq!(check_with(&[file("a/src/attests.rss.rs")], &[]).len(), 1);
    }

    #[test]
    fn an_exception_only_shrinks() {
        let longer = [("a.rs", 900)];
        assert_eq!(violations(900, &longer), 0);
        assert_eq!(violations(901, &longer), 1);
        assert_eq!(violations(899, &longer), 1);
        assert_eq!(violations(LINES_MAX, &longer), 1);
    }
}
