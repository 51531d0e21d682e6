//! The answers that clients got, and the comparison of a log with them.

use std::collections::{BTreeMap, BTreeSet};

use eventlog::{Event, EventPlace, Offset, Version};
use processor::{Done, Refused};

/// The answers to commands, by the names of their requests.
#[derive(Debug, Default)]
pub struct AnswerLedger {
    done: BTreeMap<String, Done>,
    /// Commands that were in the log and not applied when they were answered.
    not_applied: BTreeMap<String, Offset>,
    unknown: BTreeSet<String>,
    refused: BTreeSet<String>,
}

impl AnswerLedger {
    /// Notes an answer.
    ///
    /// # Panics
    /// If the same request got another answer before.
    pub fn note(&mut self, request: &str, answered: &Result<Done, Refused>) {
        let request = request.to_owned();
        match answered {
            Ok(done) => {
                let first = self.done.insert(request.clone(), done.clone());
                if let Some(first) = first {
                    let is_same = (first.version(), first.wlog, &first.answer)
                        == (done.version(), done.wlog, &done.answer);
                    assert!(is_same, "{request} was first answered {first:?}, and then {done:?}");
                }
            }
            Err(Refused::NotApplied { plog, .. }) => drop(self.not_applied.insert(request, *plog)),
            Err(Refused::Unknown(_)) => drop(self.unknown.insert(request)),
            Err(Refused::Busy(_) | Refused::Rejected(_)) => drop(self.refused.insert(request)),
        }
    }

    /// The number of commands that were done.
    #[must_use]
    pub fn done(&self) -> usize {
        self.done.len()
    }

    /// Forgets the answer to a request: afterwards the command may be done or not.
    pub fn forget(&mut self, request: &str) {
        self.done.remove(request);
        self.not_applied.remove(request);
        self.refused.remove(request);
        self.open(request);
    }

    /// Notes a request that got no answer: the command may be done or not.
    pub fn open(&mut self, request: &str) {
        self.unknown.insert(request.to_owned());
    }

    /// Checks that the events of a log agree with the answers.
    ///
    /// # Panics
    /// If they do not.
    pub(crate) fn check(&self, events: &[Event]) {
        let mut seen: BTreeMap<&str, EventPlace> = BTreeMap::new();
        for event in events {
            let request = event.request.as_str();
            let before = seen.insert(request, event.place);
            assert_eq!(before, None, "{request} was done twice");
        }
        for (request, done) in &self.done {
            let place = seen.get(request.as_str()).unwrap_or_else(|| panic!("{request} is lost"));
            let version = Version { epoch: place.epoch, plog: place.plog };
            assert_eq!(
                (version, place.wlog),
                (done.version(), done.wlog),
                "{request} was answered"
            );
        }
        for (request, plog) in &self.not_applied {
            let place = seen.get(request.as_str()).unwrap_or_else(|| panic!("{request} is lost"));
            assert_eq!(place.plog, *plog);
        }
        for request in &self.refused {
            let is_tried_again = self.done.contains_key(request)
                || self.not_applied.contains_key(request)
                || self.unknown.contains(request);
            let is_there = seen.contains_key(request.as_str());
            assert!(!is_there || is_tried_again, "{request} was refused, and done");
        }
        for request in seen.keys() {
            let is_known = self.done.contains_key(*request)
                || self.not_applied.contains_key(*request)
                || self.unknown.contains(*request);
            assert!(is_known, "the request {request} was never sent");
        }
    }
}
