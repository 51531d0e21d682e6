//! The line of the log about an action of an operator.

use hyper::{Response, StatusCode};
use tracing::info;

use crate::{problem::ProblemDetails, response::Body};

/// The most bytes of a query in the line of a refused action.
const QUERY_BYTES: usize = 256;

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

/// The beginning of a query, for the line of a refused action.
pub(super) fn beginning(query: &str) -> &str {
    &query[..query.floor_char_boundary(QUERY_BYTES)]
}
