//! The lines of the log about actions of operators, and about requests that are refused.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use access::Principal;
use clock::Instant;
use hyper::{Response, StatusCode, http::request::Parts};
use tracing::{info, warn};

use crate::{problem::ProblemDetails, response::Body};

/// The most bytes of a path and of a query in the line of a refused request.
const MOST_BYTES: usize = 256;

/// An action that has begun. Its line is written when the value is dropped: also if the client is
/// gone before the answer, because the action may go on to its end.
pub(super) struct ActionLine<'a> {
    principal: Option<String>,
    action: &'a str,
    query: Option<&'a str>,
    status: Option<StatusCode>,
}

impl<'a> ActionLine<'a> {
    pub(super) fn begin(
        principal: Option<String>,
        action: &'a str,
        query: Option<&'a str>,
    ) -> ActionLine<'a> {
        ActionLine { principal, action, query, status: None }
    }

    /// Notes the answer.
    pub(super) fn end(
        mut self,
        answer: Result<Response<Body>, ProblemDetails>,
    ) -> Result<Response<Body>, ProblemDetails> {
        self.status = Some(match &answer {
            Ok(response) => response.status(),
            Err(problem) => problem.status(),
        });
        answer
    }
}

impl Drop for ActionLine<'_> {
    fn drop(&mut self) {
        let ActionLine { principal, action, query, status } = self;
        let status = status.map_or(0, |status| status.as_u16());
        info!(principal, action, query, status, "action of an operator");
    }
}

/// The pause between two lines about clients with a valid token, and about those without one.
const PAUSE: Duration = Duration::from_secs(1);

/// The lines about requests for actions, and for what the storage holds, that are refused.
///
/// Anybody who reaches the port can cause such a line, and a token without any right is enough for
/// one with a principal. More lines than the log takes would hide the actions of operators. So the
/// lines have a pause, and a line has the number of those that were left out before it. Clients
/// without a token do not hide those with one.
#[derive(Debug, Default)]
pub(super) struct RefusalLog {
    known: Mutex<LeftOut>,
    unknown: Mutex<LeftOut>,
}

#[derive(Debug, Default)]
struct LeftOut {
    last: Option<Instant>,
    count: u64,
}

impl RefusalLog {
    pub(super) fn log(
        &self,
        principal: Option<&Principal>,
        head: &Parts,
        status: StatusCode,
        now: Instant,
    ) {
        let of_kind = if principal.is_some() { &self.known } else { &self.unknown };
        let Some(left_out) = LeftOut::take(of_kind, now) else { return };
        let (action, query) = (beginning(head.uri.path()), head.uri.query().map(beginning));
        let (principal, status) = (principal.map(Principal::as_str), status.as_u16());
        warn!(principal, action, query, status, left_out, "request of an operator refused");
    }
}

impl LeftOut {
    /// The number of lines that were left out; `None` if one more is.
    fn take(of_kind: &Mutex<LeftOut>, now: Instant) -> Option<u64> {
        let mut left_out = of_kind.lock().unwrap_or_else(PoisonError::into_inner);
        if left_out.last.is_some_and(|last| now < last + PAUSE) {
            left_out.count += 1;
            return None;
        }
        left_out.last = Some(now);
        Some(std::mem::take(&mut left_out.count))
    }
}

/// The beginning of a path or a query, for the line of a refused request.
fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(MOST_BYTES)]
}

#[cfg(test)]
mod tests {
    use clock::ManualClock;

    use super::*;

    #[test]
    fn lines_that_anybody_can_cause_have_a_pause() {
        let start = ManualClock::new(1).clock().now();
        let lines = Mutex::default();
        let at = |millis| LeftOut::take(&lines, start + Duration::from_millis(millis));
        assert_eq!(at(0), Some(0));
        assert_eq!([at(1), at(999)], [None, None]);
        assert_eq!(at(1_000), Some(2));
        assert_eq!([at(1_500), at(2_000)], [None, Some(1)]);
    }
}
