//! The checks of a history. Each one is a promise of the node.

mod answers;
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

/// No check reports more violations.
const MOST: usize = 20;

pub(crate) const ALL: [Check; 14] = [
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
        promise: "a command that was answered as done has one event, which its answer names; a refused one has none; one of unknown outcome has at most one",
        find: answers::find,
    },
    Check {
        name: "values",
        promise: "the event of a command has the values that the command sent, and the ids of its answer",
        find: values::find,
    },
    Check {
        name: "keys",
        promise: "all tries with one idempotency key have one effect and one answer, which each answer after the effect repeats",
        find: keys::find,
    },
    Check {
        name: "offsets",
        promise: "the offsets of all logs are dense, epochs never fall along a log, and the logs of workspaces and partitions agree",
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
        promise: "the reads and changes of each document can be put into one order, and a change with If-Match follows the version that it names, and a refusal has a version that explains it",
        find: documents::find,
    },
    Check {
        name: "lists",
        promise: "a list has its documents in order, has all that it must have at one moment for each of them, and never goes back",
        find: lists::find,
    },
    Check {
        name: "logs",
        promise: "a log that is read has all events that were acknowledged before, in the order of the log, and never goes back; a follower gets each event once, up to the end",
        find: logs::find,
    },
    Check {
        name: "epochs",
        promise: "no leader answers a command that was sent after anything of its successor was seen, and epochs never fall",
        find: epochs::find,
    },
    Check {
        name: "eventual",
        promise: "a read that may be old says so, and returns a version that the record had",
        find: eventual::find,
    },
];

impl Check {
    pub(crate) fn run(&self, facts: &Facts<'_>) -> Vec<Violation> {
        self.run_whole(facts).into_iter().take(MOST).collect()
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
