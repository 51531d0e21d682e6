//! The tests that the specifications name: `tests/README.md` lists them, and each file that the
//! list names must contain the name.

use super::SourceFile;

const LIST: &str = "tests/README.md";
const HEADING: &str = "## Named behaviours\n";

/// Returns the rows whose file is missing, or does not contain the name.
pub(super) fn check(files: &[SourceFile]) -> Vec<String> {
    let find = |path: &str| files.iter().find(|file| file.path == path);
    let Some((_, section)) = find(LIST).and_then(|list| list.text.split_once(HEADING)) else {
        return vec![format!("{LIST}: the section `{}` is missing", HEADING.trim())];
    };
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split("` | `");
        Some((cells.next()?, cells.next()?.split('`').next()?))
    });
    let wrong = rows.filter_map(|(name, path)| match find(path) {
        None => Some(format!("{LIST}: `{name}` is in `{path}`, which does not exist")),
        Some(file) if !file.text.contains(name) => {
            Some(format!("{LIST}: `{path}` does not contain the name `{name}`"))
        }
        Some(_) => None,
    });
    wrong.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_its_file_does_not_contain_is_found() {
        let file =
            |path: &str, text: &str| SourceFile { path: path.to_owned(), text: text.to_owned() };
        let list =
            |row: &str| file(LIST, &format!("{HEADING}\n| name | file |\n{row}\n\n## Next\n"));
        let test = || file("a.rs", "/// VVM.test.Basic\n");
        assert!(check(&[list("| `VVM.test.Basic` | `a.rs` | mem |"), test()]).is_empty());
        for row in ["| `VVM.test.Other` | `a.rs` | mem |", "| `VVM.test.Basic` | `b.rs` | mem |"] {
            assert_eq!(check(&[list(row), test()]).len(), 1, "{row}");
        }
        assert_eq!(check(&[test()]).len(), 1, "there is no list");
    }
}
