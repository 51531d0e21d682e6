//! The answers that clients got, and their comparison with a log.

use std::collections::{BTreeMap, BTreeSet};

use eventlog::{Event, EventPlace, Offset, Version};
use processor::{Done, Refused};

/// The answers to commands, by the names of their requests.
///
/// A request may be sent several times, each time as another *copy*. A rejection settles a request
/// for good, even if the outcome of an earlier copy is unknown: a leader rejects a command only
/// when no write of a former leader can still land. That holds only if no other copy was under way
/// meanwhile, because the leader may run that one later. So the ledger judges a rejection as final
/// only if a test tells it when each copy is [sent](AnswerLedger::sent).
#[derive(Debug, Default)]
pub struct AnswerLedger {
    done: BTreeMap<String, Done>,
    /// Commands that were in the log and not applied when they were answered.
    not_applied: BTreeMap<String, Offset>,
    unknown: BTreeSet<String>,
    refused: BTreeSet<String>,
    /// Requests with a copy that never gets an answer.
    open: BTreeSet<String>,
    copies: BTreeMap<String, CopiesUnderWay>,
}

/// The copies of a request that were sent and have no answer yet.
#[derive(Clone, Copy, Debug, Default)]
struct CopiesUnderWay {
    count: usize,
    /// Whether two copies have been under way at the same time since last there was none.
    have_overlapped: bool,
}

impl AnswerLedger {
    /// Notes that a copy of a request is sent.
    pub fn sent(&mut self, request: &str) {
        let copies = self.copies.entry(request.to_owned()).or_default();
        copies.count += 1;
        copies.have_overlapped |= copies.count > 1;
    }

    /// Notes that a copy of a request got an answer. Returns whether the copy was the only one that
    /// was under way from its sending to its answer.
    fn answered_alone(&mut self, request: &str) -> bool {
        let Some(copies) = self.copies.get_mut(request) else { return false };
        let was_alone = copies.count == 1 && !copies.have_overlapped;
        copies.count = copies.count.saturating_sub(1);
        copies.have_overlapped &= copies.count > 0;
        was_alone
    }

    /// Notes an answer.
    ///
    /// # Panics
    /// If the same request got another answer before.
    pub fn note(&mut self, request: &str, answered: &Result<Done, Refused>) {
        let was_alone = self.answered_alone(request);
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
            Err(Refused::Rejected(_)) => {
                if was_alone {
                    self.unknown.remove(&request);
                }
                self.refused.insert(request);
            }
            Err(Refused::Busy(_)) => drop(self.refused.insert(request)),
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

    /// Notes that a copy of a request gets no answer: the command may be done or not.
    pub fn open(&mut self, request: &str) {
        self.open.insert(request.to_owned());
    }

    /// Whether the event of a request may be in the log.
    fn may_be_done(&self, request: &str) -> bool {
        self.done.contains_key(request)
            || self.not_applied.contains_key(request)
            || self.unknown.contains(request)
            || self.open.contains(request)
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
            let is_there = seen.contains_key(request.as_str());
            assert!(!is_there || self.may_be_done(request), "{request} was refused, and done");
        }
        for request in seen.keys() {
            assert!(self.may_be_done(request), "the request {request} was never sent");
        }
    }
}

#[cfg(test)]
mod tests {
    use clock::WallTime;
    use eventlog::{Epoch, WsId};
    use processor::Rejection;

    use super::*;

    /// Plays the steps of two copies of a request, `a` and `b`. Returns whether the ledger accepts
    /// a log with the event of the request.
    fn accepts(steps: &[(&str, Option<Refused>)]) -> bool {
        let mut ledger = AnswerLedger::default();
        for (step, answer) in steps {
            match (*step, answer) {
                ("send", _) => ledger.sent("r"),
                ("open", _) => ledger.open("r"),
                (_, Some(answer)) => ledger.note("r", &Err(answer.clone())),
                (step, None) => panic!("{step}"),
            }
        }
        let (epoch, plog) = (Epoch(1), Offset(1));
        let place = EventPlace { epoch, plog, ws: WsId(7), wlog: Offset(1) };
        let command = "shop.Sell".parse().expect("it is a name");
        let mut event = Event::new(place, WallTime::from_nanos(0), command);
        event.request = "r".to_owned();
        std::panic::catch_unwind(|| ledger.check(&[event])).is_ok()
    }

    /// The ledger exempted every request whose outcome was ever unknown. So a command that was
    /// refused for good, and done later by a late write, was never noticed.
    #[test]
    fn a_request_that_was_rejected_last_must_not_be_done() {
        let sends = ("send", None);
        let unknown = ("answer", Some(Refused::Unknown("no answer".to_owned())));
        let rejected = ("answer", Some(Refused::Rejected(Rejection::not_found("nothing"))));
        let busy = ("answer", Some(Refused::Busy(processor::Busy::TimedOut)));
        let [sends, unknown, rejected, busy] = [&sends, &unknown, &rejected, &busy];
        let play = |steps: &[&(&'static str, Option<Refused>)]| {
            accepts(&steps.iter().map(|step| (*step).clone()).collect::<Vec<_>>())
        };
        assert!(play(&[sends, unknown]));
        assert!(play(&[sends, unknown, sends, busy]), "busy settles nothing");
        assert!(!play(&[sends, unknown, sends, rejected]), "the rejection settles the request");
        assert!(!play(&[sends, unknown, sends, rejected, sends, busy]));
        assert!(play(&[sends, unknown, sends, rejected, sends, unknown]), "a later copy is open");
        assert!(play(&[sends, sends, unknown, rejected]), "the copies overlapped");
        assert!(!play(&[sends, sends, unknown, rejected, sends, rejected]));
        assert!(play(&[sends, &("open", None), sends, rejected]), "the first copy may be done");
        assert!(play(&[unknown, rejected]), "the ledger does not know when they were sent");
    }
}
