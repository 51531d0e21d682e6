//! A line of a comment or a document has at most 100 characters. rustfmt breaks only code.

use super::SourceFile;

const LENGTH_MAX: usize = 100;

/// Returns the lines that are too long.
pub(super) fn check(files: &[SourceFile]) -> Vec<String> {
    files.iter().flat_map(check_file).collect()
}

fn check_file(file: &SourceFile) -> Vec<String> {
    let is_source = file.path.ends_with(".rs");
    if !is_source && !file.path.ends_with(".md") {
        return Vec::new();
    }
    let (mut is_code, mut found) = (false, Vec::new());
    for (i, line) in file.text.lines().enumerate() {
        let Some(text) = (if is_source { comment_of(line) } else { Some(line) }) else {
            is_code = false;
            continue;
        };
        let (text, length) = (text.trim(), line.chars().count());
        if text.starts_with("```") {
            is_code = !is_code;
        } else if !is_code && length > LENGTH_MAX && can_be_broken(text) {
            found.push(format!(
                "{}:{}: the line has {length} characters, more than {LENGTH_MAX}",
                file.path,
                i + 1
            ));
        }
    }
    found
}

/// Returns the text of a line that is a comment.
fn comment_of(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.trim_start_matches(['/', '!']))
}

/// Returns whether a line can be broken: it is not a row of a table, a picture or HTML, and has
/// more than one word, which may be a long link.
fn can_be_broken(text: &str) -> bool {
    let is_whole = ["|", "![", "<"].iter().any(|start| text.starts_with(start));
    !is_whole && text.trim_start_matches(['-', '*', ' ']).contains(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        check(&[SourceFile { path: path.to_owned(), text: text.to_owned() }])
    }

    /// Returns a line of this many characters with this beginning. The characters have two bytes.
    fn line(start: &str, length: usize) -> String {
        let rest = length - start.chars().count() - 2;
        format!("{start}ä {}", "ö".repeat(rest))
    }

    #[test]
    fn a_long_line_is_found_with_its_number() {
        for (path, start) in
            [("a.rs", "//! "), ("a.rs", "    /// "), ("a.rs", "// "), ("a.md", ""), ("a.md", "- ")]
        {
            let text = format!("{}\n{}\n", line(start, 100), line(start, 101));
            let found = found(path, &text);
            assert_eq!(found.len(), 1, "{path} {start:?}: {found:?}");
            assert!(found[0].starts_with(&format!("{path}:2: the line has 101 ")), "{found:?}");
        }
    }

    #[test]
    fn code_tables_and_links_may_be_long() {
        let code = |start: &str| format!("{start}```\n{}\n{start}```\n", line(start, 101));
        for (path, text) in [
            ("a.rs", line("fn a() ", 101)),
            ("a.rs", code("/// ")),
            ("a.md", code("")),
            ("a.md", line("| ", 101)),
            ("a.md", line("![", 101)),
            ("a.md", format!("- <https://{}>", "a".repeat(101))),
            ("a.md", format!("[a](https://{})", "a".repeat(101))),
            ("a.toml", line("# ", 101)),
        ] {
            assert!(found(path, &text).is_empty(), "{path}: {text}");
        }
    }

    /// The comments of an item after a block of code that is not closed are no code.
    #[test]
    fn prose_behind_code_is_checked() {
        let closed = format!("```\n```\n{}", line("", 101));
        assert_eq!(found("a.md", &closed).len(), 1);
        let open = format!("/// ```\nfn a() {{}}\n{}", line("// ", 101));
        assert_eq!(found("a.rs", &open).len(), 1);
    }
}
