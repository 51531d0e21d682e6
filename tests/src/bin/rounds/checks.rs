//! The checks of a history. Each one is a promise of the node.

mod answers;
mod batches;
#[cfg(test)]
mod defects;
mod documents;
mod epochs;
mod eventual;
mod facts;
mod ids;
mod keys;
mod lists;
mod logs;
mod numbers;
mod offsets;
mod outcomes;
mod readable;
mod records;
#[cfg(test)]
pub(crate) mod testing;
mod values;
mod versions;

use std::fmt;

pub(crate) use self::facts::Facts;
use crate::history::History;

/// A promise that the history breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// The name of the check.
    pub(crate) check: &'static str,
    pub(crate) text: String,
    /// The operations that prove it, by their numbers.
    pub(crate) operations: Vec<u64>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.check, self.text)
    }
}

/// What a check has found: a text, and the operations that prove it.
type Found = Vec<(String, Vec<u64>)>;

/// A check, its name, and its promise.
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) promise: &'static str,
    find: fn(&Facts<'_>) -> Found,
}

/// The most violations that a check reports.
const MOST: usize = 20;

pub(crate) const ALL: [Check; 15] = [
    Check {
        name: "readable",
        promise: "all logs and records can be read after the last fault",
        find: readable::find,
    },
    Check {
        name: "outcomes",
        promise: "each answer is one that the API documents for its request",
        find: outcomes::find,
    },
    Check {
        name: "answers",
        promise: "a command that was answered as done has one event, which its answer names. A refused command has none. A command that its partition refused after all other tries had the answer 504 has none, either. A command of unknown outcome has at most one",
        find: answers::find,
    },
    Check {
        name: "values",
        promise: "the event of a command has the values that the command sent, and the ids of its answer",
        find: values::find,
    },
    Check {
        name: "keys",
        promise: "all tries with one idempotency key have one effect and one answer. Once the effect is known, each later answer repeats it",
        find: keys::find,
    },
    Check {
        name: "batches",
        promise: "the commands of a batch are done in the order of the batch",
        find: batches::find,
    },
    Check {
        name: "offsets",
        promise: "the offsets of all logs are dense, epochs and the times of events never fall along a log, and the logs of workspaces and partitions agree",
        find: offsets::find,
    },
    Check {
        name: "ids",
        promise: "no id is given to two records, and the ids of a workspace have no gaps",
        find: ids::find,
    },
    Check {
        name: "numbers",
        promise: "no document number is given twice, and gapless series have no gaps",
        find: numbers::find,
    },
    Check {
        name: "records",
        promise: "each record is what the log of its workspace makes of it, and there are no other records",
        find: records::find,
    },
    Check {
        name: "documents",
        promise: "the reads and changes of each document are linearizable, and a change with `If-Match` follows the version that it names. A refusal has a version that explains it",
        find: documents::find,
    },
    Check {
        name: "lists",
        promise: "a list has its documents in order, each once. It has all documents that it must have, each in a version that was possible then, and never goes back",
        find: lists::find,
    },
    Check {
        name: "logs",
        promise: "a log that is read has all events that were acknowledged before, and never goes back. A follower gets each event once, in order, up to the end",
        find: logs::find,
    },
    Check {
        name: "epochs",
        promise: "no leader answers a command that was sent after a client saw an epoch of its successor, and no two nodes do commands with one epoch. In all that clients saw, epochs never fall",
        find: epochs::find,
    },
    Check {
        name: "eventual",
        promise: "a read that may be old says so, and returns a version that the record had",
        find: eventual::find,
    },
];

impl Check {
    /// Returns the first violations, and then how many more there are.
    pub(crate) fn run(&self, facts: &Facts<'_>) -> Vec<Violation> {
        let mut all = self.run_whole(facts);
        let more = all.len().saturating_sub(MOST);
        all.truncate(MOST);
        let text = format!("and {more} more");
        let last = Violation { check: self.name, text, operations: Vec::new() };
        all.extend((more > 0).then_some(last));
        all
    }

    /// Returns all violations, however many.
    pub(crate) fn run_whole(&self, facts: &Facts<'_>) -> Vec<Violation> {
        let found = (self.find)(facts).into_iter();
        let check = self.name;
        found.map(|(text, operations)| Violation { check, text, operations }).collect()
    }
}

/// Runs all checks.
pub(crate) fn run_all(history: &History) -> Vec<Violation> {
    let facts = Facts::of(history);
    ALL.iter().flat_map(|check| check.run(&facts)).collect()
}

/// Says so if the history cannot prove that anything is missing.
pub(crate) fn limits(history: &History) -> Option<&'static str> {
    history.end.whole.is_empty().then_some(
        "The history marks no part as whole. So no check can find that something is missing in it, \
         such as the event of a command, and \"kept\" says less.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::Scene;

    #[test]
    fn a_history_without_marks_says_that_nothing_can_be_missing() {
        let mut scene = Scene::new();
        scene.create("a");
        scene.create("lost");
        scene.log().pop();
        scene.partition().pop();
        scene.history.end.records.clear();
        let checks = |scene: &Scene| -> Vec<&str> {
            run_all(&scene.history).iter().map(|of| of.check).collect()
        };
        assert_eq!(limits(&scene.history), None);
        assert_eq!(checks(&scene)[0], "answers");
        scene.unmark();
        assert_eq!(checks(&scene), [""; 0]);
        assert!(limits(&scene.history).is_some_and(|text| text.contains("marks no part")));
        // What contradicts itself is still found.
        scene.log()[0].rows[0].fields["name"] = "torn".into();
        assert_eq!(checks(&scene)[0], "values");
    }

    #[test]
    fn violations_that_are_not_listed_are_counted() {
        let texts = |count: usize| {
            let mut scene = Scene::new();
            for place in 0..count {
                scene.create(&format!("c{place}"));
            }
            for event in scene.log() {
                event.rows[0].fields["name"] = "torn".into();
            }
            let violations = run_all(&scene.history);
            let of_values = violations.into_iter().filter(|of| of.check == "values");
            of_values.map(|of| of.text).collect::<Vec<_>>()
        };
        assert!(!texts(MOST)[MOST - 1].contains("more"));
        assert_eq!(texts(MOST + 2)[MOST..], ["and 2 more"]);
    }

    #[test]
    fn the_documentation_has_the_promises_of_all_checks() {
        let text = include_str!("../../../../docs/testing.md");
        let (_, table) = text.split_once("| check | promise |\n|---|---|\n").unwrap();
        let documented: Vec<&str> =
            table.lines().take_while(|line| line.starts_with('|')).collect();
        let row = |check: &Check| format!("| `{}` | {} |", check.name, check.promise);
        assert_eq!(documented, ALL.iter().map(row).collect::<Vec<_>>());
    }
}
