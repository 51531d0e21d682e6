//! Problems with requests, as JSON (RFC 9457).

use std::{fmt::Display, time::Duration};

use hyper::{
    Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER},
};
use serde_json::{Map, Value, json};

use crate::response::{Body, json_response};

/// The code of the problem if the node does not own the partition of the request.
pub const NOT_OWNER: &str = "not_owner";

/// The code of the problem if another node forwarded the request to a node that is not the owner.
pub const MISDIRECTED: &str = "misdirected";

/// The code of the problem if the request may have been done or not.
pub const UNKNOWN: &str = "unknown";

/// The code of the problem if there is no place to follow a log.
pub const TOO_MANY_FOLLOWERS: &str = "too_many_followers";

/// The code of the problem if a series has no number for the request.
pub const NO_NUMBER: &str = "no_number";

/// The member of the problem of a path that does not exist. It names the port that answers, so a
/// client can tell that it was given the other port of a node.
pub const UNKNOWN_PATH_PORT: &str = "port";

/// The member of the problem of an application that the node does not have. It lists the
/// applications of the node that the sender may know of.
pub const KNOWN_APPS: &str = "apps";

/// The most bytes of a reason. A handler may reject a command with a text of any length, and the
/// answer to a forwarded request has a bound.
const MOST_REASON_BYTES: usize = 8 << 10;

/// The result of a request: an answer, or a problem.
pub type Answer = Result<Response<Body>, ProblemDetails>;

/// A problem with a request, for programs and for people.
#[derive(Debug)]
pub struct ProblemDetails {
    status: StatusCode,
    /// The code, for programs. Codes do not change.
    code: &'static str,
    /// The reason, for people.
    reason: String,
    /// The number of seconds after which the client may try again.
    retry_after: Option<u32>,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// Further members of the problem.
    more: Map<String, Value>,
}

impl ProblemDetails {
    /// A problem with a status, a code for programs, and a reason for people.
    pub fn new(
        status: StatusCode,
        code: &'static str,
        reason: impl Into<String>,
    ) -> ProblemDetails {
        let (reason, more) = (shortened(reason.into()), Map::new());
        ProblemDetails { status, code, reason, retry_after: None, headers: Vec::new(), more }
    }

    /// The problem of a method that the path does not have. `allow` has those that it has.
    pub fn method_not_allowed(allow: &str, reason: impl Into<String>) -> ProblemDetails {
        ProblemDetails::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", reason)
            .with_header(ALLOW, allow)
    }

    /// Adds a header of the answer.
    pub fn with_header(mut self, name: HeaderName, value: &str) -> ProblemDetails {
        self.headers.extend(HeaderValue::from_str(value).map(|value| (name, value)));
        self
    }

    /// The code, for programs.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// The status code of the answer.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The reason, for people.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The problem of a request that cannot be understood.
    pub fn bad_request(reason: impl Into<String>) -> ProblemDetails {
        ProblemDetails::new(StatusCode::BAD_REQUEST, "bad_request", reason)
    }

    /// The problem of a request for something that does not exist.
    pub fn not_found(reason: impl Into<String>) -> ProblemDetails {
        ProblemDetails::new(StatusCode::NOT_FOUND, "not_found", reason)
    }

    /// The problem of a request to the API for an application that the node does not have. `known`
    /// are the applications of the node that the sender may know of.
    pub fn not_deployed(app: impl Display, known: Vec<String>) -> ProblemDetails {
        ProblemDetails::no_app("not_deployed", app, known)
    }

    /// As [`ProblemDetails::not_deployed`], for a request to the admin endpoint.
    pub fn no_such_app(app: impl Display, known: Vec<String>) -> ProblemDetails {
        ProblemDetails::no_app("not_found", app, known)
    }

    fn no_app(code: &'static str, app: impl Display, known: Vec<String>) -> ProblemDetails {
        let has = match known.is_empty() {
            true => String::new(),
            false => format!("; it has {}", known.join(", ")),
        };
        let reason = format!("this node has no application {app}{has}");
        ProblemDetails::new(StatusCode::NOT_FOUND, code, reason).with(KNOWN_APPS, known)
    }

    /// A problem of a request of which the node did nothing. The client may try again.
    pub fn unavailable(code: &'static str, reason: impl Into<String>) -> ProblemDetails {
        ProblemDetails {
            retry_after: Some(1),
            ..ProblemDetails::new(StatusCode::SERVICE_UNAVAILABLE, code, reason)
        }
    }

    /// The problem of a principal that takes more than its share. Nothing was done, and the client
    /// may try again.
    pub fn rate_limited(reason: impl Into<String>) -> ProblemDetails {
        ProblemDetails {
            retry_after: Some(1),
            ..ProblemDetails::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", reason)
        }
    }

    /// Sets how long the client waits before it tries again, in whole seconds and at least one.
    pub fn retry_after(mut self, time: Duration) -> ProblemDetails {
        let seconds = time.as_secs_f64().ceil().max(1.0);
        self.retry_after = Some(seconds as u32);
        self
    }

    /// Adds a member.
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> ProblemDetails {
        self.more.insert(name.to_owned(), value.into());
        self
    }

    /// The problem of one command of a batch, which has no response of its own.
    pub fn into_answer(self) -> Value {
        let ProblemDetails { status, code, reason, retry_after, more, .. } = self;
        let mut problem = json!({ "status": status.as_u16(), "code": code, "reason": reason });
        if let Some(problem) = problem.as_object_mut() {
            problem.extend(retry_after.map(|seconds| ("retryAfter".to_owned(), json!(seconds))));
            problem.extend(more);
        }
        problem
    }

    /// The answer of a request with this problem.
    pub fn into_response(self) -> Response<Body> {
        let ProblemDetails { status, code, reason, retry_after, headers: own, more } = self;
        let mut problem = json!({
            "type": "about:blank",
            "title": status.canonical_reason(),
            "status": status.as_u16(),
            "code": code,
            "reason": reason,
        });
        if let Some(problem) = problem.as_object_mut() {
            problem.extend(more);
        }
        let mut response = json_response(status, &problem);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        headers.extend(own);
        response
    }
}

/// Cuts a reason that is too long, and marks the cut.
fn shortened(mut reason: String) -> String {
    const MARK: char = '…';
    if reason.len() > MOST_REASON_BYTES {
        reason.truncate(reason.floor_char_boundary(MOST_REASON_BYTES - MARK.len_utf8()));
        reason.push(MARK);
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_problem_that_passes_has_a_retry_after_header() {
        let after = |problem: ProblemDetails| {
            problem
                .into_response()
                .headers()
                .get(RETRY_AFTER)
                .map(|after| after.to_str().unwrap().to_owned())
        };
        assert_eq!(
            after(ProblemDetails::unavailable("recovering", "the partition recovers")).as_deref(),
            Some("1")
        );
        assert_eq!(after(ProblemDetails::not_found("there is no such document")), None);
    }

    /// The text of a handler made the answer of a refused command longer than another node takes,
    /// so the client got a 504.
    #[test]
    fn a_reason_that_is_too_long_is_cut() {
        let reason = |text: String| ProblemDetails::bad_request(text).reason().to_owned();
        let longest = "x".repeat(MOST_REASON_BYTES);
        assert_eq!(reason(longest.clone()), longest);
        let cut = reason(longest.clone() + "x");
        assert_eq!((cut.len(), cut.strip_suffix('…')), (8_192, longest.get(..8_189)));
        // No character is cut.
        assert_eq!(reason("é".repeat(1 << 20)), "é".repeat(4_094) + "…");
    }
}
