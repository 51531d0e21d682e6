//! Web pages of other origins that may use the API (Fetch Standard, section 3.2).
//!
//! A browser lets a page read an answer only if the answer names the origin of the page. Before
//! most requests it asks by a *preflight* whether the page may send them. The page sends a token by
//! itself, so no answer allows credentials that a browser adds.

use std::sync::Arc;

use bytes::Bytes;
use hyper::{
    Method, Response,
    header::{
        ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
        ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD,
        HeaderMap, HeaderValue, ORIGIN, VARY,
    },
};

use crate::response::{Body, full_body};

const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PATCH, DELETE");

/// The headers of requests that the API reads.
const READ: HeaderValue = HeaderValue::from_static(
    "authorization, content-type, idempotency-key, if-match, last-event-id, traceparent, tracestate, \
     x-request-id",
);

/// The headers of answers that a page may read, besides those that every page may read.
const SHOWN: HeaderValue = HeaderValue::from_static(
    "etag, location, retry-after, www-authenticate, x-request-id, x-vvm-consistency, x-vvm-served-by",
);

/// How many seconds a browser remembers the answer to a preflight.
const REMEMBERED: HeaderValue = HeaderValue::from_static("600");

/// The origins of the pages that may use the API.
#[derive(Clone, Debug)]
pub struct PageOrigins(Arc<[HeaderValue]>);

impl PageOrigins {
    /// Origins such as `https://app.example`. Origins that no header can have are left out: no page
    /// has one.
    pub fn new(origins: &[String]) -> PageOrigins {
        PageOrigins(
            origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok()).collect(),
        )
    }

    /// The answer to a preflight of a page that may use the API; `None` if the request is not one.
    pub fn preflight(&self, method: &Method, headers: &HeaderMap) -> Option<Response<Body>> {
        let is_preflight =
            *method == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        self.of(headers).filter(|_| is_preflight)?;
        let mut answer = Response::new(full_body(Bytes::new()));
        let told = answer.headers_mut();
        told.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        told.insert(ACCESS_CONTROL_ALLOW_HEADERS, READ);
        told.insert(ACCESS_CONTROL_MAX_AGE, REMEMBERED);
        Some(answer)
    }

    /// Lets the page of a request read the answer. A cache must not give the answer for one page to
    /// another one.
    pub fn tell(&self, request: &HeaderMap, answer: &mut HeaderMap) {
        if self.0.is_empty() {
            return;
        }
        answer.append(VARY, HeaderValue::from_static("origin"));
        if let Some(origin) = self.of(request) {
            answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            answer.insert(ACCESS_CONTROL_EXPOSE_HEADERS, SHOWN);
        }
    }

    /// The origin of the page that sent a request, if that page may use the API.
    fn of(&self, headers: &HeaderMap) -> Option<&HeaderValue> {
        let mut origins = headers.get_all(ORIGIN).iter();
        match (origins.next(), origins.next()) {
            (Some(origin), None) => self.0.iter().find(|allowed| *allowed == origin),
            _ => None,
        }
    }
}
