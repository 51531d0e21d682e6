//! The response of each request, with the headers that all responses have.

use http_server::{
    problem::{Answer, ProblemDetails},
    request_head::RequestHead,
    response::{Body, REQUEST_ID, keep_out_of_caches},
};
use hyper::{
    Response,
    header::{CONNECTION, HeaderName, HeaderValue},
};

use crate::{context::ApiContext, openapi::is_listed};

/// The header with the address of the node that answered.
const SERVED_BY: HeaderName = HeaderName::from_static("x-vvm-served-by");

/// Makes the response of a request.
pub(crate) fn response_of(
    api: &ApiContext,
    head: &mut RequestHead,
    answer: Answer,
) -> Response<Body> {
    let code = answer.as_ref().err().map(ProblemDetails::code);
    let mut response = answer.unwrap_or_else(|problem| {
        let (status, code) = (problem.status().as_u16(), problem.code());
        debug_assert!(is_listed(status, code), "{status} {code} is not among the codes");
        metrics::counter!("httpapi_problems_total", "code" => code).increment(1);
        problem.with("requestId", &*head.request).into_response()
    });
    head.span.answered(response.status(), code);
    let headers = response.headers_mut();
    keep_out_of_caches(headers);
    if let Ok(id) = HeaderValue::from_str(&head.request) {
        headers.insert(REQUEST_ID, id);
    }
    if api.forwarder.is_some()
        && !headers.contains_key(SERVED_BY)
        && let Ok(address) = HeaderValue::try_from(api.node.advertised().to_string())
    {
        headers.insert(SERVED_BY, address);
    }
    // A load balancer opens its next connection to another node.
    if api.node.is_draining() {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
