//! A page of the node: one file without foreign parts, and the headers that keep the page apart from
//! all other pages.

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use hyper::{
    Response, StatusCode,
    header::{
        CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue, REFERRER_POLICY,
        X_CONTENT_TYPE_OPTIONS,
    },
};
use sha2::{Digest, Sha256};

use crate::response::{Body, bytes_response};

/// A page and its policy.
pub(crate) struct HtmlPage {
    html: &'static str,
    policy: HeaderValue,
}

impl HtmlPage {
    /// Computes the policy of a page with one script and one style. The browser runs only the script
    /// and the style with these hashes, and connects only to the port of the page. The script cannot
    /// make elements from text.
    pub(crate) fn new(html: &'static str) -> HtmlPage {
        let policy = format!(
            "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; \
             frame-ancestors 'none'; base-uri 'none'; form-action 'none'; \
             require-trusted-types-for 'script'; trusted-types 'none'",
            hash_of(html, "script"),
            hash_of(html, "style"),
        );
        let policy = policy.try_into().expect("the policy has visible characters only");
        HtmlPage { html, policy }
    }

    pub(crate) fn response(&self) -> Response<Body> {
        let html = Bytes::from_static(self.html.as_bytes());
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
fn hash_of(html: &str, element: &str) -> String {
    let (_, rest) = html.split_once(&format!("<{element}>")).unwrap_or_default();
    let (content, _) = rest.split_once(&format!("</{element}>")).unwrap_or_default();
    format!("'sha256-{}'", BASE64_STANDARD.encode(Sha256::digest(content)))
}
