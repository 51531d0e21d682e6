//! The headers of requests and answers.

use serde_json::{Value as Json, json};

use super::json::reference;
use crate::route::{AnswerKind, CONSISTENCY, Endpoint, RequestHeader};

/// The parameter of a header that counts for some operations only.
pub(super) fn parameter_of(header: RequestHeader) -> Json {
    reference(
        "parameters",
        match header {
            RequestHeader::IdempotencyKey => "IdempotencyKey",
            RequestHeader::IfMatch => "IfMatch",
            RequestHeader::LastEventId => "LastEventId",
        },
    )
}

/// The headers of the answer to a request that succeeds.
pub(super) fn headers_of(endpoint: &Endpoint) -> Json {
    let mut headers = json!({
        "X-Request-Id": reference("headers", "RequestId"),
        "X-Vvm-Served-By": reference("headers", "ServedBy"),
    });
    if endpoint.answer == AnswerKind::OneRecord {
        headers["ETag"] = reference("headers", "Version");
    }
    if endpoint.parameters.iter().any(|parameter| parameter.name == CONSISTENCY) {
        headers["X-Vvm-Consistency"] = reference("headers", "Consistency");
    }
    headers
}
