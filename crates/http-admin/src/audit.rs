//! The log lines about actions of operators, and about refused requests.

use access::Principal;
use http_server::{
    client_lines::{ClientLine, beginning},
    problem::Answer,
    server::RequestClient,
};
use hyper::{StatusCode, http::request::Parts};
use tracing::{info, warn};

/// The target of the lines about what operators did. A log that has no room for other lines should
/// keep room for these.
pub const OPERATOR_LINES: &str = "httpapi::operator";

/// An action that has begun. Its line is written when the value is dropped, even if the client
/// leaves before the answer: the action may still go on to its end.
pub(crate) struct ActionLine<'a> {
    principal: &'a Principal,
    /// The path of the action.
    action: &'a str,
    query: Option<&'a str>,
    status: Option<StatusCode>,
}

impl<'a> ActionLine<'a> {
    pub(crate) fn begin(
        principal: &'a Principal,
        action: &'a str,
        query: Option<&'a str>,
    ) -> ActionLine<'a> {
        ActionLine { principal, action, query, status: None }
    }

    /// Notes the answer.
    pub(crate) fn end(mut self, answer: Answer) -> Answer {
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
        let (principal, status) = (principal.as_str(), status.map_or(0, |status| status.as_u16()));
        info!(target: OPERATOR_LINES, principal, action, query, status, "action of an operator");
    }
}

/// Logs a refused request for an action, or for what the storage holds.
pub(crate) fn note_refused(principal: Option<&Principal>, head: &Parts, status: StatusCode) {
    let client = head.extensions.get::<RequestClient>();
    let line = |client: &RequestClient| client.lines().next(ClientLine::OperatorRefused, principal);
    let left_out = client.and_then(line);
    let Some(left_out) = left_out else { return };
    let principal = principal.map(Principal::as_str);
    let (action, query) = (beginning(head.uri.path()), head.uri.query().map(beginning));
    let status = status.as_u16();
    warn!(principal, action, query, status, left_out, "request of an operator refused");
}
