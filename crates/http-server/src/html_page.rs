//! A page of the node: one file without foreign parts, and the headers that keep the page apart
//! from all other pages.

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use hyper::{
    Response, StatusCode,
    header::{CONTENT_SECURITY_POLICY, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS},
};
use sha2::{Digest, Sha256};

use crate::response::{Body, bytes_response};

/// The style that all pages share: colours, and the looks of cards, buttons and banners.
const SHARED_STYLE: &str = include_str!("page.css");

/// A page and its policy.
#[derive(Debug)]
pub struct HtmlPage {
    html: Bytes,
    policy: HeaderValue,
}

impl HtmlPage {
    /// Puts the shared style before that of the page, and computes the policy of a page with one
    /// script and one style. The browser runs only the script and the style with these hashes, and
    /// connects only to the port of the page. The script cannot make elements from text.
    ///
    /// # Panics
    /// If the page has not exactly one style, which begins a line.
    pub fn new(html: &str) -> HtmlPage {
        assert_eq!(html.matches("<style>\n").count(), 1, "a page has one style");
        let html = html.replacen("<style>\n", &format!("<style>\n{SHARED_STYLE}"), 1);
        let policy = format!(
            "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; \
             frame-ancestors 'none'; base-uri 'none'; form-action 'none'; \
             require-trusted-types-for 'script'; trusted-types 'none'",
            hash_of(&html, "script"),
            hash_of(&html, "style"),
        );
        let policy = policy.try_into().expect("the policy has visible characters only");
        HtmlPage { html: html.into(), policy }
    }

    /// The answer with the page.
    pub fn response(&self) -> Response<Body> {
        let html = self.html.clone();
        let mut response = bytes_response(StatusCode::OK, "text/html; charset=utf-8", html);
        let headers = response.headers_mut();
        headers.insert(CONTENT_SECURITY_POLICY, self.policy.clone());
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        response
    }
}

/// The hash of the only element of this name, as a source of the policy.
fn hash_of(html: &str, element: &str) -> String {
    let (_, rest) = html.split_once(&format!("<{element}>")).unwrap_or_default();
    let (content, _) = rest.split_once(&format!("</{element}>")).unwrap_or_default();
    format!("'sha256-{}'", BASE64_STANDARD.encode(Sha256::digest(content)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_the_shared_style_in_its_only_style() {
        let html = "<style>\n:root {}</style><script>1</script>";
        let page = HtmlPage::new(html);
        let text = str::from_utf8(&page.html).unwrap();
        assert_eq!(text.matches("<style>").count(), 1);
        assert!(text.contains(&format!("<style>\n{SHARED_STYLE}:root {{")));
        let hash = hash_of(text, "style");
        assert_ne!(hash, hash_of(html, "style"));
        assert!(page.policy.to_str().unwrap().contains(&format!("style-src {hash};")));
    }
}
