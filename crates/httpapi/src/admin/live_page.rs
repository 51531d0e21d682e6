//! The live page: one file without foreign parts, and the headers that keep the page apart from all
//! other pages.

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use hyper::{
    Response, StatusCode,
    header::{
        CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue, InvalidHeaderValue, REFERRER_POLICY,
        X_CONTENT_TYPE_OPTIONS,
    },
};
use sha2::{Digest, Sha256};

use crate::response::{Body, bytes_response};

const HTML: &str = include_str!("live_page.html");

/// The page and its policy.
pub(super) struct LivePage {
    policy: HeaderValue,
}

impl LivePage {
    /// Computes the policy. The browser runs only the script and the style with these hashes, and
    /// connects only to this endpoint. The script cannot make elements from text.
    pub(super) fn new() -> Result<LivePage, InvalidHeaderValue> {
        let policy = format!(
            "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; \
             frame-ancestors 'none'; base-uri 'none'; form-action 'none'; \
             require-trusted-types-for 'script'; trusted-types 'none'",
            hash_of("script"),
            hash_of("style"),
        );
        Ok(LivePage { policy: policy.try_into()? })
    }

    pub(super) fn response(&self) -> Response<Body> {
        let html = Bytes::from_static(HTML.as_bytes());
        let mut response = bytes_response(StatusCode::OK, "text/html; charset=utf-8", html);
        let headers = response.headers_mut();
        headers.insert(CONTENT_SECURITY_POLICY, self.policy.clone());
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

/// The hash of the only element of this name, as a source of the policy.
fn hash_of(element: &str) -> String {
    let (_, rest) = HTML.split_once(&format!("<{element}>")).unwrap_or_default();
    let (content, _) = rest.split_once(&format!("</{element}>")).unwrap_or_default();
    format!("'sha256-{}'", BASE64_STANDARD.encode(Sha256::digest(content)))
}
