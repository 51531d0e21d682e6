//! The tries of a request in a cluster: what follows from the end of each.
//!
//! Invariant: a 401, 403, 429 or 503 means that the request changed nothing. So if one try may have
//! changed something, the request gets only an answer that its partition gives after it has looked
//! for the idempotency key, or else 504 `unknown`. In a simpler version only a 503 becomes a 504.
//! The connection breaks while a command runs; the token of the client ends; the second try gets
//! 401. So the client believes that the command was refused, but it is done.

use http_server::problem::{Answer, MISDIRECTED, NOT_OWNER, ProblemDetails, UNKNOWN};
use hyper::StatusCode;

use crate::outcome::BatchState;

/// The end of a try.
pub(crate) enum TryEnd {
    /// The request is answered. The code is that of a problem, or of the state of a batch.
    Answered(Answer, Option<String>),
    /// The request was not done, and may be tried again. The answer says why.
    Refused(Answer),
    /// The request may have been done.
    Unknown(String),
}

impl TryEnd {
    /// The end of a try whose answer is final although nothing was done.
    pub(crate) fn refused_for_good(problem: ProblemDetails) -> TryEnd {
        TryEnd::Answered(Err(problem), None)
    }
}

/// The tries of one request.
#[derive(Debug)]
pub(crate) struct Tries {
    /// Whether the request has the same effect if it is done twice: it only reads, or it has an
    /// idempotency key.
    can_be_sent_twice: bool,
    is_read: bool,
    /// Whether an earlier try may have done the request, and the reason why this is not known.
    unknown: Option<String>,
}

/// The step after a try.
pub(crate) enum NextStep {
    Answer(Answer),
    /// Try again. The answer is for a request without any time left.
    Again(Answer),
}

/// The codes of problems of requests that were not done, and that another try may do.
const TRIED_AGAIN: [&str; 4] = [NOT_OWNER, "recovering", "stopping", MISDIRECTED];

/// The codes of problems that settle a command with an idempotency key: the partition says that the
/// command was not done before, or names its event. After any other problem it is not known whether
/// an earlier try did the command.
const SETTLED: [&str; 7] =
    ["invalid", "not_found", "conflict", "no_number", "key_reused", "too_large", "not_applied"];

/// Whether a request with this problem was not done, and may be tried again.
pub(crate) fn is_tried_again(code: &str) -> bool {
    TRIED_AGAIN.contains(&code)
}

/// Whether this problem settles a command that an earlier try may have done: the problem tells the
/// outcome.
pub fn is_settled(code: &str) -> bool {
    SETTLED.contains(&code)
}

impl Tries {
    pub(crate) fn new(is_read: bool, has_key: bool) -> Tries {
        Tries { can_be_sent_twice: is_read || has_key, is_read, unknown: None }
    }

    pub(crate) fn can_be_sent_twice(&self) -> bool {
        self.can_be_sent_twice
    }

    /// The step after a try that ended.
    pub(crate) fn next(&mut self, end: TryEnd) -> NextStep {
        match end {
            // An owner that does not know whether the command was done may know it after recovery.
            TryEnd::Answered(answer, code)
                if code.as_deref() == Some(UNKNOWN) && self.can_be_sent_twice =>
            {
                self.unknown = Some("the owner does not know whether it was done".to_owned());
                NextStep::Again(answer)
            }
            // The earlier try may have done a command that is refused as busy now.
            TryEnd::Answered(_, code)
                if let Some(why) = &self.unknown
                    && state_of(code.as_deref()) == Some(BatchState::PartlyBusy) =>
            {
                NextStep::Again(Err(unknown(why)))
            }
            TryEnd::Answered(answer, code) => NextStep::Answer(self.settled(answer, code)),
            TryEnd::Refused(answer) => NextStep::Again(self.settled(answer, None)),
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

    /// The answer of a request: 504 `unknown` if an earlier try may have done the request, and this
    /// answer does not tell the outcome of that try.
    pub(crate) fn settled(&self, answer: Answer, code: Option<String>) -> Answer {
        let Some(why) = &self.unknown else { return answer };
        let is_settled = match &answer {
            Err(problem) => is_settled(problem.code()),
            Ok(response) => match (state_of(code.as_deref()), code) {
                (Some(BatchState::PartlyBusy | BatchState::PartlyUnsettled), _) => false,
                (None, Some(code)) => is_settled(&code),
                (None, None) => response.status().is_success(),
            },
        };
        if is_settled { answer } else { Err(unknown(why)) }
    }
}

/// The state of a batch with this code.
fn state_of(code: Option<&str>) -> Option<BatchState> {
    code.and_then(BatchState::of)
}

/// The problem of a request that may have been done.
fn unknown(why: &str) -> ProblemDetails {
    let reason = format!("it is not known whether the request was done: {why}");
    ProblemDetails::new(StatusCode::GATEWAY_TIMEOUT, UNKNOWN, reason)
}

#[cfg(test)]
mod tests {
    use http_server::response::json_response;

    use super::*;

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
        for code in ["not_owner", "recovering", "stopping", "misdirected"] {
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

    /// The client got the problem of the last try, for example that its token had ended, and
    /// believed that the command was refused. The first try had done it.
    #[test]
    fn a_problem_that_does_not_tell_the_outcome_of_an_earlier_try_is_not_the_answer() {
        let problem = |status: u16, code| {
            let status = StatusCode::from_u16(status).unwrap();
            ProblemDetails::new(status, code, "why")
        };
        // A problem of this node, and one that another node answers.
        let ends = |status, code: &'static str| {
            let of_other = problem(status, code).into_response();
            [
                TryEnd::Answered(Err(problem(status, code)), None),
                TryEnd::Answered(Ok(of_other), Some(code.to_owned())),
            ]
        };
        for (status, code, is_settled) in [
            (401, "unauthenticated", false),
            (403, "forbidden", false),
            (429, "rate_limited", false),
            (413, "body_too_large", false),
            (500, "internal", false),
            (400, "invalid", true),
            (409, "conflict", true),
            (422, "key_reused", true),
            (500, "not_applied", true),
        ] {
            for end in ends(status, code) {
                let mut tries = Tries::new(false, true);
                tries.next(TryEnd::Unknown("it broke".to_owned()));
                let expected = if is_settled { status } else { 504 };
                assert_eq!(step(tries.next(end)), (expected, false), "{code}");
            }
            for end in ends(status, code) {
                assert_eq!(step(Tries::new(false, true).next(end)), (status, false), "{code}");
            }
        }
        // An answer that no API made.
        let mut tries = Tries::new(false, true);
        tries.next(TryEnd::Unknown("it broke".to_owned()));
        let foreign = json_response(StatusCode::BAD_REQUEST, &1);
        assert_eq!(step(tries.next(TryEnd::Answered(Ok(foreign), None))), (504, false));
    }

    /// The answer to a batch in this state.
    fn done_in_state(state: BatchState) -> TryEnd {
        match done() {
            TryEnd::Answered(answer, _) => TryEnd::Answered(answer, Some(state.code().to_owned())),
            other => other,
        }
    }

    /// The client was told that a command of its batch was not done, but an earlier try of the
    /// batch had done it.
    #[test]
    fn a_batch_that_may_be_done_is_tried_until_none_of_its_commands_is_busy() {
        let partly = || done_in_state(BatchState::PartlyBusy);
        assert_eq!(step(Tries::new(false, true).next(partly())), (200, false));
        let mut tries = Tries::new(false, true);
        tries.next(TryEnd::Unknown("it broke".to_owned()));
        assert_eq!(step(tries.next(partly())), (504, true));
        assert_eq!(step(tries.next(done())), (200, false));
    }

    /// The client was told that a command of its batch had failed, but an earlier try of the batch
    /// had done it.
    #[test]
    fn a_batch_that_may_be_done_is_settled_only_if_all_its_commands_are() {
        let partly = || done_in_state(BatchState::PartlyUnsettled);
        assert_eq!(step(Tries::new(false, true).next(partly())), (200, false));
        let mut tries = Tries::new(false, true);
        assert_eq!(step(tries.next(TryEnd::Refused(busy("recovering")))), (503, true));
        assert_eq!(step(tries.next(partly())), (200, false), "nothing was done before");
        tries.next(TryEnd::Unknown("it broke".to_owned()));
        assert_eq!(step(tries.next(partly())), (504, false));
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
