//! The answer to a request that no handler gets: hyper could not read it, or it came without TLS.

use clock::Clock;
use http_body_util::BodyExt;
use hyper::{HeaderMap, Response, StatusCode, header::HeaderValue};

use super::limits::HttpLimits;
use crate::{
    problem::ProblemDetails,
    request_id::request_id,
    response::{Body, REQUEST_ID, keep_out_of_caches},
};

/// The number of headers that hyper reads at most.
const MOST_HEADERS: usize = 100;

/// The problem of a request that hyper could not read.
pub(super) fn parse_problem(
    error: &hyper::Error,
    read: &[u8],
    limits: &HttpLimits,
) -> ProblemDetails {
    let head_bytes = limits.head_bytes;
    if error.is_parse_too_large() && !read.contains(&b'\n') {
        let reason = format!("the request line has more than {head_bytes} bytes");
        return ProblemDetails::new(StatusCode::URI_TOO_LONG, "uri_too_long", reason);
    }
    if error.is_parse_too_large() {
        let reason = format!(
            "the head of the request has more than {head_bytes} bytes or more than {MOST_HEADERS} headers"
        );
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return ProblemDetails::new(status, "head_too_large", reason);
    }
    if read.starts_with(&TLS) {
        return ProblemDetails::bad_request(
            "the client sent a TLS handshake, and this port speaks plain HTTP: use http://, or give the port a certificate, or put a proxy in front that terminates TLS",
        );
    }
    ProblemDetails::bad_request(format!("the request is not valid HTTP/1.1: {error}"))
}

/// The problem of a request without TLS to a port with TLS.
pub(super) fn plain_request() -> ProblemDetails {
    ProblemDetails::bad_request(
        "the client sent a plain HTTP request, and this port speaks TLS: use https://",
    )
}

/// The first bytes of a TLS handshake.
const TLS: [u8; 2] = [0x16, 0x03];

/// The answer with a problem. It has the id of the request, as the answers of handlers have.
pub(super) fn response(
    problem: ProblemDetails,
    headers: &HeaderMap,
    clock: &Clock,
) -> Response<Body> {
    let id = request_id(headers, clock);
    let mut response = problem.with("requestId", &*id).into_response();
    keep_out_of_caches(response.headers_mut());
    if let Ok(id) = HeaderValue::try_from(id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// The bytes of the node's answer, which replaces an answer that hyper wrote by itself. The date is
/// that of hyper's answer.
pub(super) async fn raw_response(response: Response<Body>, date: &str) -> Vec<u8> {
    let (head, body) = response.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let (status, length) = (head.status, body.len());
    let mut text = format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ndate: {date}\r\ncontent-length: {length}\r\n"
    );
    for (name, value) in &head.headers {
        text += &format!("{name}: {}\r\n", String::from_utf8_lossy(value.as_bytes()));
    }
    [text.as_bytes(), b"\r\n", &body].concat()
}
