//! The headers of requests and answers.

use serde_json::{Map, Value as Json, json};

use super::json::{reference, text};
use crate::route::{AnswerKind, CONSISTENCY, Endpoint, RequestHeader};

/// The headers of requests, as parameters.
pub(super) fn parameters() -> Map<String, Json> {
    let header = |header: &str, schema: Json, description: &str| json!({ "name": header, "in": "header", "schema": schema, "description": description });
    let name = json!({ "type": "string", "minLength": 1, "maxLength": 256 });
    let tag = json!({ "type": "string", "pattern": r#"^"[0-9]+\.[0-9]+"$"# });
    let parameters = [
        (
            "RequestId",
            header(
                "X-Request-Id",
                name.clone(),
                "The id of the request in its event and its answer.",
            ),
        ),
        (
            "IdempotencyKey",
            header(
                "Idempotency-Key",
                name,
                "The same request with the same key is done only once within a day.",
            ),
        ),
        ("IfMatch", header("If-Match", tag, "The `ETag` of the record that the request expects.")),
        (
            "LastEventId",
            header(
                "Last-Event-ID",
                json!({ "type": "string", "pattern": "^[0-9]*$" }),
                "The last event that a client of server-sent events has. It takes precedence over \
                 `from`, and counts only with `Accept: text/event-stream`.",
            ),
        ),
        (
            "IfNoneMatch",
            header(
                "If-None-Match",
                json!({ "type": "string" }),
                "The `ETag` of the description that the client has.",
            ),
        ),
    ];
    parameters.into_iter().map(|(name, parameter)| (name.to_owned(), parameter)).collect()
}

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

/// The headers of answers.
pub(super) fn headers() -> Map<String, Json> {
    let header = |description: &str| json!({ "schema": text(description) });
    let seconds = json!({ "schema": { "type": "integer", "minimum": 1, "maximum": 60 } });
    let headers = [
        ("RequestId", header("The id of the request.")),
        ("ServedBy", header("In a cluster: the address of the node that did the request.")),
        ("Version", header("The version of the record, for `If-Match`.")),
        ("Tag", header("The version of the description, for `If-None-Match`.")),
        ("Consistency", header("`eventual` if the record may be outdated.")),
        ("Challenge", header("What the request lacks.")),
        ("Allow", header("The methods of the path.")),
        ("RetryAfter", seconds),
    ];
    headers.into_iter().map(|(name, header)| (name.to_owned(), header)).collect()
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
