//! The problems that requests may get.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value as Json, json};

use super::{
    codes::{PROBLEM_CODES, ProblemCode, ProblemOf},
    json::{natural, reference, text},
};
use crate::route::{AnswerKind, BodyKind, Endpoint, RequestHeader};

/// All codes by status.
fn by_status() -> BTreeMap<u16, BTreeSet<&'static str>> {
    let mut all: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for ProblemCode { status, code, .. } in PROBLEM_CODES {
        all.entry(*status).or_default().insert(*code);
    }
    all
}

fn name(status: u16) -> String {
    format!("Problem{status}")
}

/// A schema for the problems of each status.
pub(super) fn problem_schemas() -> Map<String, Json> {
    by_status().into_iter().map(|(status, codes)| (name(status), problem(status, &codes))).collect()
}

fn problem(status: u16, codes: &BTreeSet<&str>) -> Json {
    json!({
        "type": "object",
        "description": "A problem with a request (RFC 9457).",
        "properties": {
            "type": { "const": "about:blank" },
            "title": text("The meaning of the status."),
            "status": { "const": status },
            "code": { "type": "string", "enum": codes, "description": "For programs." },
            "reason": text("For people."),
            "requestId": text("The `X-Request-Id` of the answer."),
            "port": {
                "const": "api",
                "description": "With the code `not_found`, if the path of the request does not exist. The admin endpoint answers `admin`.",
            },
            "apps": {
                "type": "array", "items": { "type": "string" },
                "description": "With the code `not_deployed`: the applications of the node where the token grants something.",
            },
            "owner": text("The address of the owner of the partition, with some codes of 429 and 503."),
            "plogOffset": natural("The offset of the event, with the code `not_applied`."),
        },
        "required": ["type", "title", "status", "code", "reason", "requestId"],
    })
}

/// A response for the problems of each status.
pub(super) fn problem_responses() -> Map<String, Json> {
    let response = |(status, codes): (u16, BTreeSet<&str>)| {
        let mut headers = json!({
            "X-Request-Id": reference("headers", "RequestId"),
            "X-Vvm-Served-By": reference("headers", "ServedBy"),
        });
        let mut add = |name: &str, of: &str| headers[name] = reference("headers", of);
        match status {
            401 | 403 => add("WWW-Authenticate", "Challenge"),
            405 => add("Allow", "Allow"),
            429 | 503 => add("Retry-After", "RetryAfter"),
            _ => {}
        }
        let codes = Vec::from_iter(codes).join("`, `");
        let response = json!({
            "description": format!("`{codes}`"),
            "headers": headers,
            "content": {
                "application/problem+json": {
                    "schema": reference("schemas", &name(status)),
                },
            },
        });
        (name(status), response)
    };
    by_status().into_iter().map(response).collect()
}

/// The responses to requests for an endpoint that fail.
pub(super) fn problems_of(endpoint: &Endpoint) -> Map<String, Json> {
    responses(|of| match of {
        ProblemOf::All | ProblemOf::App => true,
        ProblemOf::Body => endpoint.body.is_some(),
        ProblemOf::Change => !endpoint.is_read() && endpoint.body != Some(BodyKind::Draw),
        ProblemOf::Write => !endpoint.is_read(),
        ProblemOf::Key => endpoint.headers.contains(&RequestHeader::IdempotencyKey),
        ProblemOf::Numbers => {
            matches!(endpoint.answer, AnswerKind::Drawn | AnswerKind::Next | AnswerKind::Gaps)
        }
        ProblemOf::Log => endpoint.is_log(),
        ProblemOf::Nothing => false,
    })
}

/// The responses to requests for the description that fail.
pub(super) fn problems_of_description() -> Map<String, Json> {
    responses(|of| of == ProblemOf::All)
}

fn responses(is_possible: impl Fn(ProblemOf) -> bool) -> Map<String, Json> {
    let possible = PROBLEM_CODES.iter().filter(|listed| is_possible(listed.of));
    let response = |listed: &ProblemCode| {
        (listed.status.to_string(), reference("responses", &name(listed.status)))
    };
    possible.map(response).collect()
}
