//! The lines of the log about actions of operators, and about requests that are refused.

use std::sync::atomic::{AtomicU64, Ordering};

use access::Principal;
use clock::Instant;
use hyper::{Response, StatusCode, http::request::Parts};
use tracing::{info, warn};

use super::paths::Action;
use crate::{authentication::PrincipalRate, problem::ProblemDetails, response::Body};

/// The most bytes of a path and of a query in the line of a refused request.
const MOST_BYTES: usize = 256;

/// An action that has begun. Its line is written when the value is dropped: also if the client is
/// gone before the answer, because the action may go on to its end.
pub(super) struct ActionLine<'a> {
    principal: &'a Principal,
    action: Action,
    query: Option<&'a str>,
    status: Option<StatusCode>,
}

impl<'a> ActionLine<'a> {
    pub(super) fn begin(
        principal: &'a Principal,
        action: Action,
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
        let &mut ActionLine { principal, action, query, status } = self;
        let (principal, action) = (principal.as_str(), action.path());
        let status = status.map_or(0, |status| status.as_u16());
        info!(principal, action, query, status, "action of an operator");
    }
}

/// The lines that one principal may cause in a second.
const LINES_PER_SECOND: u32 = 10;

/// The lines about requests for actions, and for what the storage holds, that are refused.
///
/// Anybody who reaches the port can cause such a line, and a token without any right is enough for
/// one with a principal. More lines than the log takes would hide the actions of operators. So each
/// principal has a limit, and all clients without a valid token have one together. A line has the
/// number of those that were left out before it.
#[derive(Debug)]
pub(super) struct RefusalLog {
    rate: PrincipalRate,
    left_out: AtomicU64,
}

impl RefusalLog {
    pub(super) fn new() -> RefusalLog {
        let rate = PrincipalRate::new(LINES_PER_SECOND).expect("it is not zero");
        RefusalLog { rate, left_out: AtomicU64::new(0) }
    }

    pub(super) fn log(
        &self,
        principal: Option<&Principal>,
        head: &Parts,
        status: StatusCode,
        now: Instant,
    ) {
        let principal = principal.map(Principal::as_str);
        let Some(left_out) = self.left_out(principal, now) else { return };
        let (action, query) = (beginning(head.uri.path()), head.uri.query().map(beginning));
        let status = status.as_u16();
        warn!(principal, action, query, status, left_out, "request of an operator refused");
    }

    /// The number of lines that were left out; `None` if one more is.
    fn left_out(&self, principal: Option<&str>, now: Instant) -> Option<u64> {
        // No principal has an empty name.
        match self.rate.take(principal.unwrap_or_default(), 1, now) {
            Ok(()) => Some(self.left_out.swap(0, Ordering::Relaxed)),
            Err(_) => {
                self.left_out.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }
}

/// The beginning of a path or a query, for the line of a refused request.
fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(MOST_BYTES)]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clock::ManualClock;

    use super::*;

    #[test]
    fn lines_that_anybody_can_cause_have_a_limit() {
        let start = ManualClock::new(1).clock().now();
        let log = RefusalLog::new();
        let at = |principal, millis| log.left_out(principal, start + Duration::from_millis(millis));
        assert!((0..10).all(|_| at(None, 0) == Some(0)));
        assert_eq!([at(None, 0), at(None, 99)], [None, None]);
        assert_eq!(at(Some("issuer|a"), 99), Some(2), "a principal has lines of its own");
        assert_eq!([at(None, 100), at(None, 100)], [Some(0), None]);
        assert_eq!(at(None, 200), Some(1));
    }
}
