//! The defects of `tests/defects`. Each one is a patch for the nodes, with a wrong history that a
//! run with it wrote. The list names the check that must find it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::{Violation, run_all};
use crate::history::{self, History};

/// A defect of the list.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Defect {
    check: String,
    arguments: String,
}

/// How a wrong history is put right.
#[derive(Clone, Copy, Debug)]
enum Mend {
    /// The lines with this text are taken out.
    Without(&'static str),
    /// The text is put in the place of another one.
    Replace(&'static str, &'static str),
}

/// What the checks say of the history of each defect, and what puts the history right. Each part of
/// a history has its own mend, so each violation is that of its line alone.
const WRONG: [(&str, &str, &str, Mend); 7] = [
    ("double_apply", "keys", "key \"c102\" has the answers", Mend::Without("\"number\":2053,")),
    (
        "hole_in_log",
        "logs",
        "follower 2 stopped before event 40, and operation 415",
        Mend::Without("\"followEnd\""),
    ),
    (
        "hole_in_log",
        "outcomes",
        "event 320 of the log of workspace 2",
        Mend::Without("\"number\":3950,"),
    ),
    ("hole_in_log", "readable", "Log(2) cannot be read", Mend::Without("\"unreadable\"")),
    ("lost_command", "answers", "command \"c1661\" was answered as Written", LOST_EVENT),
    (
        "number_twice",
        "numbers",
        "ORDER2026-1128-00099 of series order was drawn twice",
        Mend::Replace("00099\",\"ORDER2026-1128-00099\"", "00099\",\"ORDER2026-1128-00999\""),
    ),
    (
        "stale_read",
        "logs",
        "the log of workspace 1: operation 719 ended before operation 759",
        Mend::Without("\"number\":759,"),
    ),
];

/// The event that the log lacks.
const LOST_EVENT: Mend = Mend::Replace(
    "{\"line\":\"whole\"",
    concat!(
        r#"{"line":"logEvent","ws":2,"event":{"wlog":3,"version":{"epoch":1,"offset":5},"#,
        r#""request":"c1661","timeMicros":1795882093000000,"rows":[{"id":322685000131073,"#,
        r#""table":"shop.Article","isActive":true,"parent":null,"#,
        r#""fields":{"cents":2831265927,"name":"a8c1b0877947c5b1"}}]}}"#,
        "\n{\"line\":\"whole\""
    ),
);

impl Mend {
    fn put_right(self, text: &str) -> String {
        match self {
            Mend::Without(part) => {
                let right = text.lines().filter(|line| !line.contains(part));
                right.map(|line| format!("{line}\n")).collect()
            }
            Mend::Replace(wrong, right) => text.replace(wrong, right),
        }
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("defects")
}

fn list() -> BTreeMap<String, Defect> {
    serde_json::from_slice(&fs::read(folder().join("list.json")).unwrap()).unwrap()
}

/// The names of the files with an extension.
fn names(extension: &str) -> BTreeSet<String> {
    let files = fs::read_dir(folder()).unwrap().map(|file| file.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|of| of == extension));
    files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

fn read(text: &str) -> History {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.jsonl");
    fs::write(&path, text).unwrap();
    history::read(&path).unwrap()
}

#[test]
fn the_history_of_each_defect_is_rejected_by_its_check() {
    for (defect, Defect { check, .. }) in list() {
        let is_there = WRONG.iter().any(|wrong| (wrong.0, wrong.1) == (&*defect, &*check));
        assert!(is_there, "{defect} must be found by {check}");
    }
    for (defect, check, text, mend) in WRONG {
        let wrong = fs::read_to_string(folder().join(format!("{defect}.jsonl"))).unwrap();
        let is_it = |of: &Violation| of.check == check && of.text.contains(text);
        let found = run_all(&read(&wrong));
        assert!(found.iter().any(is_it), "{defect}: {found:?}");
        let found = run_all(&read(&mend.put_right(&wrong)));
        assert!(!found.iter().any(|of| of.check == check), "{defect}: {found:?}");
    }
}

#[test]
fn the_history_of_each_defect_that_is_put_right_is_accepted() {
    for defect in list().keys() {
        let wrong = fs::read_to_string(folder().join(format!("{defect}.jsonl"))).unwrap();
        let mends = WRONG.iter().filter(|wrong| wrong.0 == defect).map(|wrong| wrong.3);
        let right = mends.fold(wrong, |text, mend| mend.put_right(&text));
        assert_eq!(run_all(&read(&right)), [], "{defect}");
        assert!(right.lines().count() > 1, "{defect}: something is left");
    }
}

#[test]
fn the_list_has_all_defects() {
    let listed: BTreeSet<String> = list().into_keys().collect();
    assert_eq!(listed, names("patch"));
    assert_eq!(listed, names("jsonl"));
    let known = super::ALL.map(|check| check.name);
    for (defect, Defect { check, .. }) in list() {
        assert!(known.contains(&&*check), "{defect}");
    }
}

#[test]
fn the_documentation_has_the_list() {
    let text = include_str!("../../../../../docs/testing.md");
    let head = "| defect | what the nodes do wrong | arguments | the check that must find it |\n";
    let (_, table) = text.split_once(head).unwrap();
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let cell = |row: &str, at: usize| {
        let cell = row.split('|').nth(at).unwrap_or_default().trim();
        cell.trim_matches('`').to_owned()
    };
    let documented: BTreeMap<String, Defect> = rows
        .map(|row| (cell(row, 1), Defect { arguments: cell(row, 3), check: cell(row, 4) }))
        .collect();
    assert_eq!(documented, list());
}
