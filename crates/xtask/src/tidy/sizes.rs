//! Files stay small enough to be read. A file that is too long today may only become shorter.

use super::SourceFile;

const LINES_MAX: usize = 500;
/// A file that contains only tests may be longer.
const TEST_LINES_MAX: usize = 700;

/// The most lines of the median file of the product, and of the file at the 90th percentile,
/// without their unit tests.
const MEDIAN_MAX: usize = 120;
const PERCENTILE_90_MAX: usize = 280;

/// Parts of the paths of sources that are no product: suites and their application, this program,
/// and modules that only unit tests use.
const NO_PRODUCT: &[&str] =
    &["xtask/", "tck/", "trialkit/", "shop/", "testing.rs", "/fuzz.rs", "/power", "/failures"];

/// Files that are longer, and their allowed lengths. A length goes down or the entry goes away, and
/// no entry is added.
const LONGER: &[(&str, usize)] = &[];

/// Returns the source files that are too long, the exceptions that are no longer needed, and the
/// lengths of which too many files of the product are too long.
pub(super) fn check(files: &[SourceFile]) -> Vec<String> {
    let mut violations = check_with(files, LONGER);
    violations.extend(check_product(files));
    violations
}

fn check_product(files: &[SourceFile]) -> Vec<String> {
    let product = files.iter().filter(|file| is_product(&file.path));
    let mut lengths: Vec<usize> = product.map(|file| lines_of_code(&file.text)).collect();
    lengths.sort_unstable();
    let too_long = |percent: usize, max: usize| {
        let lines = *lengths.get(lengths.len() * percent / 100)?;
        let text = format!(
            "{percent} % of the files of the product have less than {lines} lines, and not {max} or \
             less (tidy/sizes.rs): split the longest"
        );
        (lines > max).then_some(text)
    };
    [too_long(50, MEDIAN_MAX), too_long(90, PERCENTILE_90_MAX)].into_iter().flatten().collect()
}

/// Counts the lines in front of the unit tests.
fn lines_of_code(text: &str) -> usize {
    let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    code.lines().count()
}

fn is_product(path: &str) -> bool {
    let is_source = path.ends_with(".rs") && path.contains("/src/") && !is_test(path);
    let is_ours = path.starts_with("crates/") || path.starts_with("bin/");
    is_source && is_ours && !NO_PRODUCT.iter().any(|part| path.contains(part))
}

fn is_test(path: &str) -> bool {
    path.ends_with("tests.rs") || format!("/{path}").contains("/tests/")
}

fn check_with(files: &[SourceFile], longer: &[(&str, usize)]) -> Vec<String> {
    let sources = files.iter().filter(|file| file.path.ends_with(".rs"));
    sources.filter_map(|file| check_file(file, longer)).collect()
}

fn check_file(file: &SourceFile, longer: &[(&str, usize)]) -> Option<String> {
    let lines = file.text.lines().count();
    let exception = longer.iter().find(|(path, _)| *path == file.path).map(|(_, lines)| *lines);
    let path = &file.path;
    let max = if is_test(path) { TEST_LINES_MAX } else { LINES_MAX };
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
    fn the_median_and_the_90th_percentile_of_the_product_are_checked() {
        let product = |lengths: &[(&str, usize, usize)]| {
            let all = lengths.iter().flat_map(|&(path, lines, count)| {
                let text =
                    "x\n".repeat(lines) + "#[cfg(test)]\nmod tests {\n" + &"x\n".repeat(1_000);
                (0..count).map(move |_| SourceFile { path: path.to_owned(), text: text.clone() })
            });
            check_product(&all.collect::<Vec<_>>()).len()
        };
        let (short, long) = (MEDIAN_MAX, PERCENTILE_90_MAX);
        let file = "crates/a/src/a.rs";
        assert_eq!(product(&[]), 0);
        assert_eq!(product(&[(file, short, 51), (file, long, 40), (file, long + 1, 9)]), 0);
        assert_eq!(product(&[(file, short, 50), (file, short + 1, 50)]), 1);
        assert_eq!(product(&[(file, short, 90), (file, long + 1, 10)]), 1);
        for other in ["crates/a/src/tests.rs", "crates/a/benches/b.rs", "crates/xtask/src/main.rs"]
        {
            assert_eq!(product(&[(file, short, 10), (other, long + 1, 90)]), 0, "{other}");
        }
    }

    /// A file that declared a test module at its top counted as a file of a few lines.
    #[test]
    fn a_test_module_in_another_file_ends_no_count() {
        let text = "#[cfg(test)]\nmod fuzz;\n".to_owned() + &"x\n".repeat(10);
        assert_eq!(lines_of_code(&text), 12);
        assert_eq!(
            lines_of_code(&(text + "\n#[cfg(test)]\nmod tests {\n    use super::*;\n}\n")),
            12
        );
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
