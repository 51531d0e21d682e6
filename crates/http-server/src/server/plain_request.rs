//! The answer to a request without TLS on a port with TLS.

use std::net::SocketAddr;

use hyper::{
    HeaderMap, Response,
    header::{CONNECTION, HeaderValue},
};
use tracing::info;

use super::state::ServerState;
use crate::{
    client_lines::ClientLine,
    problem::ProblemDetails,
    request_id::request_id,
    response::{Body, REQUEST_ID, keep_out_of_caches},
};

/// Refuses the request. The answer has an id, as the answers of handlers have, and is the last one
/// of its connection.
pub(super) fn refusal<A>(
    headers: &HeaderMap,
    peer: SocketAddr,
    shared: &ServerState<A>,
) -> Response<Body> {
    let reason = "the client sent a plain HTTP request, and this port speaks TLS: use https://";
    let problem = ProblemDetails::bad_request(reason);
    if let Some(left_out) = shared.lines.next(ClientLine::Refused, None) {
        let (service, status) = (shared.service, problem.status().as_u16());
        info!(service, %peer, status, reason, left_out, "request refused");
    }
    let id = request_id(headers, &shared.clock);
    let mut answer = problem.with("requestId", &*id).into_response();
    let headers = answer.headers_mut();
    keep_out_of_caches(headers);
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    if let Ok(id) = HeaderValue::try_from(id) {
        headers.insert(REQUEST_ID, id);
    }
    answer
}
