//! The commands in the documents: `clap` must accept each of them.

use std::{fs, path::Path};

use clap::{Parser, error::ErrorKind};

use super::Cli;

/// The texts that `clap` cannot accept.
const NOT_COMMANDS: &[&str] = &[
    // The storage is a placeholder.
    "vvm elections verify --takeovers 30 --storage …",
    // The first bytes of a backup.
    "vvm redb backup",
];

/// A command in a document.
struct Documented {
    text: String,
    /// The command is in a sentence, and may lack arguments that it needs.
    is_named: bool,
}

/// Returns the commands in the blocks and in the sentences of a document.
fn commands(document: &str) -> Vec<Documented> {
    let mut found = Vec::new();
    let mut is_block = false;
    let mut prose = String::new();
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        if line.trim_start().starts_with("```") {
            is_block = !is_block;
            continue;
        }
        if !is_block && !line.starts_with("    ") {
            prose += line;
            prose.push('\n');
            continue;
        }
        let mut text = line.trim().to_owned();
        while let Some(begun) = text.strip_suffix('\\') {
            text = format!("{begun}{}", lines.next().unwrap_or_default().trim());
        }
        let command = text.strip_prefix("$ ").unwrap_or(&text);
        if command.starts_with("vvm ") {
            found.push(Documented { text: command.to_owned(), is_named: false });
        }
    }
    // A command in a sentence is in backquotes.
    let spans = prose.split('`').skip(1).step_by(2);
    let named = spans.map(|span| span.split_whitespace().collect::<Vec<_>>().join(" "));
    let named = named.filter(|span| span.starts_with("vvm "));
    found.extend(named.map(|text| Documented { text, is_named: true }));
    found
}

/// Returns the words of a command, as a shell splits them. A redirection, a pipe or a comment ends
/// the command.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in command.chars() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            (None, '|' | '<' | '>' | ';' | '#' | '&') if word.is_none() => break,
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// Returns why `clap` refuses a command.
fn refusal(command: &Documented) -> Option<String> {
    let error = Cli::try_parse_from(words(&command.text)).err()?;
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => None,
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            if command.is_named =>
        {
            None
        }
        _ => Some(error.to_string()),
    }
}

/// The first example of docs/export.md ended with 2.
#[test]
fn the_commands_of_the_documents_are_accepted() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let documents = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut documents: Vec<_> = documents.filter(|path| path.extension().is_some()).collect();
    documents.push(root.join("README.md"));
    documents.sort();
    let (mut count, mut skipped, mut refused) = (0, Vec::new(), Vec::new());
    for path in documents {
        for command in commands(&fs::read_to_string(&path).unwrap()) {
            let name = path.file_name().unwrap().display();
            if NOT_COMMANDS.contains(&&*command.text) {
                println!("skipped: {name}: {}", command.text);
                skipped.push(command.text);
                continue;
            }
            count += 1;
            if let Some(why) = refusal(&command) {
                refused.push(format!("{name}: {}: {why}", command.text));
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(count > 100, "only {count} commands were found");
    let unused = NOT_COMMANDS.iter().filter(|it| !skipped.iter().any(|text| text == *it));
    assert_eq!(unused.count(), 0, "only these were skipped: {skipped:?}");
}

#[test]
fn commands_are_found_and_split() {
    let document =
        "Run `vvm\nstatus`.\n\n```\n$ vvm token new \\\n    --app '*' > \"a file\"\n```\n";
    let found = commands(document);
    let texts: Vec<_> = found.iter().map(|it| (&*it.text, it.is_named)).collect();
    assert_eq!(texts, [("vvm token new --app '*' > \"a file\"", false), ("vvm status", true)]);
    assert_eq!(words(texts[0].0), ["vvm", "token", "new", "--app", "*"]);
    assert_eq!(words("vvm x \"a b\" '' # no"), ["vvm", "x", "a b", ""]);
    for (text, is_named) in
        [("vvm token new", false), ("vvm statu", true), ("vvm status --x", true)]
    {
        let command = Documented { text: text.to_owned(), is_named };
        assert!(refusal(&command).is_some(), "{text}");
    }
}
