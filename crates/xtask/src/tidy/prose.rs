//! Comments and documents are easy to read. These counts are an indicator: a text can be within
//! all limits and still be hard to read.

use super::SourceFile;

/// Two groups of words that often begin a riddle, and how many of a group may stand among a
/// thousand words.
const RIDDLES: &[(&[&str], f64)] =
    &[(&["who", "whoever", "whose"], 0.6), (&["what", "whatever"], 1.5)];

/// A sentence with more words is too long.
const SENTENCE_WORDS: usize = 40;

/// The part of all sentences that may be too long.
const LONG_SENTENCES: f64 = 0.01;

/// Returns the limits that the comments and documents of the repository exceed together, each with
/// the files that contribute most.
pub(super) fn check(files: &[SourceFile]) -> Vec<String> {
    let counts: Vec<_> = files.iter().filter_map(count_file).collect();
    let words: usize = counts.iter().map(|counts| counts.words).sum();
    let sentences: usize = counts.iter().map(|counts| counts.sentences).sum();
    let mut violations = Vec::new();
    for (group, (riddle, limit)) in RIDDLES.iter().enumerate() {
        let found: usize = counts.iter().map(|counts| counts.riddles[group]).sum();
        if found as f64 > limit * words as f64 / 1_000.0 {
            let worst = worst(&counts, |counts| counts.riddles[group]);
            violations.push(format!(
                "comments and documents say `{}` {found} times in {words} words, more than {limit} \
                 in a thousand, most often in {worst}",
                riddle.join("`, `")
            ));
        }
    }
    let long: usize = counts.iter().map(|counts| counts.long_sentences).sum();
    if long as f64 > LONG_SENTENCES * sentences as f64 {
        let worst = worst(&counts, |counts| counts.long_sentences);
        violations.push(format!(
            "{long} of {sentences} sentences have more than {SENTENCE_WORDS} words, most of them in \
             {worst}"
        ));
    }
    violations
}

struct Counts<'a> {
    path: &'a str,
    words: usize,
    riddles: [usize; RIDDLES.len()],
    sentences: usize,
    long_sentences: usize,
}

/// Returns the three files with the highest counts.
fn worst(counts: &[Counts<'_>], count: impl Fn(&Counts<'_>) -> usize) -> String {
    let mut sorted: Vec<_> = counts.iter().collect();
    sorted.sort_by_key(|counts| std::cmp::Reverse(count(counts)));
    let paths: Vec<_> = sorted.iter().take(3).map(|counts| counts.path).collect();
    paths.join(", ")
}

fn count_file(file: &SourceFile) -> Option<Counts<'_>> {
    let prose = if file.path.ends_with(".rs") {
        prose_of(file.text.lines().map(|line| comment_of(line).unwrap_or_default()))
    } else if file.path.ends_with(".md") {
        prose_of(file.text.lines())
    } else {
        return None;
    };
    let words: Vec<_> = words_of(&prose).collect();
    let riddles = std::array::from_fn(|group| {
        let (riddle, _) = RIDDLES[group];
        let is_riddle = |word: &&&str| riddle.iter().any(|of_it| of_it.eq_ignore_ascii_case(word));
        words.iter().filter(is_riddle).count()
    });
    let lengths = sentences_of(&prose).map(|sentence| words_of(sentence).count());
    let lengths: Vec<_> = lengths.filter(|&words| words > 0).collect();
    Some(Counts {
        path: &file.path,
        words: words.len(),
        riddles,
        sentences: lengths.len(),
        long_sentences: lengths.iter().filter(|&&words| words > SENTENCE_WORDS).count(),
    })
}

/// Returns the text of a line that is a comment.
pub(super) fn comment_of(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.trim_start_matches(['/', '!']))
}

/// Joins lines into prose, without blocks of code, and with each quoted word as one letter. A list
/// item and a table cell end a sentence.
fn prose_of<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let (mut prose, mut is_code) = (String::new(), false);
    for line in lines.map(str::trim) {
        if line.starts_with("```") {
            is_code = !is_code;
        }
        if is_code || line.is_empty() || line.starts_with("```") || line.starts_with('#') {
            prose.push_str(". ");
            continue;
        }
        if line.starts_with("- ") || line.starts_with("* ") {
            prose.push_str(". ");
        }
        // Every other piece between backticks is quoted. A quotation may go on in the next line;
        // then the pieces of both lines are mixed up, which is rare and harmless.
        for (i, piece) in line.split('`').enumerate() {
            prose.push_str(if i % 2 == 0 { piece } else { "x" });
        }
        prose.push(' ');
    }
    prose
}

fn words_of(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphabetic() && c != '\'');
    words.filter(|word| !word.is_empty())
}

fn sentences_of(prose: &str) -> impl Iterator<Item = &str> {
    let cells = prose.split('|').flat_map(|cell| cell.split(". "));
    cells.flat_map(|part| part.split("? ")).flat_map(|part| part.split("! "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn riddles_in_comments_and_documents_are_counted() {
        let source = "//! Says who it is, and what.\nfn who() {} // not a line of prose\n";
        let counts = [
            count_file(&file("a.rs", source)).unwrap().riddles,
            count_file(&file("a.md", "Whatever `what` is.\n```\nwho\n```\n")).unwrap().riddles,
        ];
        assert_eq!(counts, [[1, 1], [0, 1]]);
        assert!(count_file(&file("a.toml", "# who")).is_none());
    }

    #[test]
    fn a_sentence_ends_with_its_paragraph_its_item_and_its_cell() {
        let twenty = "word ".repeat(20);
        for end in ["\n\n", ".\n", "\n- ", "|", "? "] {
            let text = format!("{twenty}{end}{twenty} more");
            assert_eq!(count_file(&file("a.md", &text)).unwrap().long_sentences, 0, "{end:?}");
        }
        let long = format!("{twenty}\n{twenty} more");
        assert_eq!(count_file(&file("a.md", &long)).unwrap().long_sentences, 1);
    }

    #[test]
    fn too_many_riddles_are_told_with_the_files() {
        let found = check(&[file("a.md", "What is it?"), file("b.md", "A word.")]);
        assert_eq!(found.len(), 1);
        assert!(found[0].ends_with("most often in a.md, b.md"), "{found:?}");
        assert!(check(&[file("a.md", &"word ".repeat(30))]).is_empty());
    }
}
