//! The tries of a request in a cluster: what follows from the end of each.
//!
//! Invariant: a 503 means that the request changed nothing. So a request of which one try may have
//! changed something is never answered with a 503, but with its answer or with 504 `unknown`.

use hyper::{Response, StatusCode};

use super::batch::PARTLY_BUSY;
use crate::{
    problem::{MISDIRECTED, NOT_LEADER, ProblemDetails, UNKNOWN},
    response::Body,
};

/// An answer: that of the API of this node, or that of another node.
pub(super) type Answer = Result<Response<Body>, ProblemDetails>;

/// The end of a try.
pub(super) enum TryEnd {
    /// The request is answered. The code is that of a problem.
    Answered(Answer, Option<String>),
    /// The request was not done, and may be tried again. The answer says why.
    Refused(Answer),
    /// The request may have been done.
    Unknown(String),
}

/// The tries of one request.
#[derive(Debug)]
pub(super) struct Tries {
    /// Whether the request has the same effect if it is done twice: it only reads, or it has an
    /// idempotency key.
    can_be_sent_twice: bool,
    is_read: bool,
    /// Whether an earlier try may have done the request, and the reason why this is not known.
    unknown: Option<String>,
}

/// The step after a try.
pub(super) enum NextStep {
    Answer(Answer),
    /// Try again. The answer is for a request without any time left.
    Again(Answer),
}

/// The codes of problems of requests that were not done, and that another try may do.
const TRIED_AGAIN: [&str; 4] = [NOT_LEADER, "recovering", "stopping", MISDIRECTED];

/// Whether a request with this problem was not done, and may be tried again.
pub(super) fn is_tried_again(code: &str) -> bool {
    TRIED_AGAIN.contains(&code)
}

impl Tries {
    pub(super) fn new(is_read: bool, has_key: bool) -> Tries {
        Tries { can_be_sent_twice: is_read || has_key, is_read, unknown: None }
    }

    pub(super) fn can_be_sent_twice(&self) -> bool {
        self.can_be_sent_twice
    }

    /// The step after a try that ended.
    pub(super) fn next(&mut self, end: TryEnd) -> NextStep {
        match end {
            // An owner that does not know whether the command was done may know it after recovery.
            TryEnd::Answered(answer, code)
                if code.as_deref() == Some(UNKNOWN) && self.can_be_sent_twice =>
            {
                self.unknown = Some("the owner does not know whether it was done".to_owned());
                NextStep::Again(answer)
            }
            // A command of the batch that is busy now may have been done by the earlier try.
            TryEnd::Answered(_, code)
                if let Some(why) = &self.unknown
                    && code.as_deref() == Some(PARTLY_BUSY) =>
            {
                NextStep::Again(Err(unknown(why)))
            }
            TryEnd::Answered(answer, _) => NextStep::Answer(self.settled(answer)),
            TryEnd::Refused(answer) => NextStep::Again(self.settled(answer)),
            TryEnd::Unknown(why) if self.is_read => {
                NextStep::Again(Err(ProblemDetails::unavailable("unreachable", why)))
            }
            TryEnd::Unknown(why) => {
                let answer = Err(unknown(&why));
                self.unknown = Some(why);
                match self.can_be_sent_twice {
                    true => NextStep::Again(answer),
                    false => NextStep::Answer(answer),
                }
            }
        }
    }

    /// The answer of a request, if an earlier try may have done it.
    pub(super) fn settled(&self, answer: Answer) -> Answer {
        let is_unavailable = match &answer {
            Ok(response) => response.status() == StatusCode::SERVICE_UNAVAILABLE,
            Err(problem) => problem.status() == StatusCode::SERVICE_UNAVAILABLE,
        };
        match &self.unknown {
            Some(why) if is_unavailable => Err(unknown(why)),
            _ => answer,
        }
    }
}

/// The problem of a request that may have been done.
fn unknown(why: &str) -> ProblemDetails {
    let reason = format!("it is not known whether the request was done: {why}");
    ProblemDetails::new(StatusCode::GATEWAY_TIMEOUT, UNKNOWN, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response::json_response;

    fn busy(code: &'static str) -> Answer {
        Err(ProblemDetails::unavailable(code, "why"))
    }

    fn done() -> TryEnd {
        TryEnd::Answered(Ok(json_response(StatusCode::OK, &1)), None)
    }

    /// The status of an answer, and whether the request is tried again.
    fn step(next: NextStep) -> (u16, bool) {
        let (answer, again) = match next {
            NextStep::Answer(answer) => (answer, false),
            NextStep::Again(answer) => (answer, true),
        };
        let status = answer.map_or_else(|problem| problem.status(), |answer| answer.status());
        (status.as_u16(), again)
    }

    #[test]
    fn only_requests_that_were_not_done_are_tried_again() {
        for code in ["not_leader", "recovering", "stopping", "misdirected"] {
            assert!(is_tried_again(code), "{code}");
        }
        for code in ["queue_full", "timed_out", "storage", "violation", "failed", "unknown"] {
            assert!(!is_tried_again(code), "{code}");
        }
    }

    #[test]
    fn a_request_that_may_be_done_is_sent_twice_only_if_that_changes_nothing() {
        for (is_read, has_key, expected) in
            [(true, false, (503, true)), (false, true, (504, true)), (false, false, (504, false))]
        {
            let mut tries = Tries::new(is_read, has_key);
            assert_eq!(step(tries.next(TryEnd::Unknown("it broke".to_owned()))), expected);
        }
    }

    #[test]
    fn a_request_that_may_be_done_is_never_answered_as_not_done() {
        let mut tries = Tries::new(false, true);
        assert_eq!(step(tries.next(TryEnd::Refused(busy("recovering")))), (503, true));
        tries.next(TryEnd::Unknown("it broke".to_owned()));
        assert_eq!(step(tries.next(TryEnd::Refused(busy("recovering")))), (504, true));
        let full = TryEnd::Answered(busy("queue_full"), Some("queue_full".to_owned()));
        assert_eq!(step(tries.next(full)), (504, false));
        assert_eq!(step(tries.next(done())), (200, false), "the answer is known now");
    }

    /// The client was told that a command of its batch was not done, but an earlier try of the
    /// batch had done it.
    #[test]
    fn a_batch_that_may_be_done_is_tried_until_none_of_its_commands_is_busy() {
        let partly = || match done() {
            TryEnd::Answered(answer, _) => TryEnd::Answered(answer, Some(PARTLY_BUSY.to_owned())),
            other => other,
        };
        assert_eq!(step(Tries::new(false, true).next(partly())), (200, false));
        let mut tries = Tries::new(false, true);
        tries.next(TryEnd::Unknown("it broke".to_owned()));
        assert_eq!(step(tries.next(partly())), (504, true));
        assert_eq!(step(tries.next(done())), (200, false));
    }

    #[test]
    fn an_owner_that_does_not_know_the_outcome_is_asked_again_by_key() {
        let lost = || TryEnd::Answered(Err(unknown("why")), Some(UNKNOWN.to_owned()));
        assert_eq!(step(Tries::new(false, false).next(lost())), (504, false));
        let mut keyed = Tries::new(false, true);
        assert_eq!(step(keyed.next(lost())), (504, true));
        assert_eq!(step(keyed.next(TryEnd::Refused(busy("stopping")))), (504, true));
        assert_eq!(step(keyed.next(done())), (200, false));
    }
}
