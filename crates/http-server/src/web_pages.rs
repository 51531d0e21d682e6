//! Refusing requests that web pages of other sites made.
//!
//! A browser sends requests to this machine for any page that its user opens. So a port that does
//! not authenticate its clients, and has no authenticating proxy in front, serves only requests to
//! this machine that no page of another site made.

use hyper::{
    StatusCode,
    header::{HOST, HeaderMap, HeaderName, ORIGIN},
    http::request::Parts,
};

use crate::{authority::Host, problem::ProblemDetails};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The header of each action of the live page. A page of another site can send the header only
/// after a preflight request, and the endpoint answers none.
const ADMIN: HeaderName = HeaderName::from_static("x-vvm-admin");

/// The advice to an operator of a node that other machines should reach. With tokens, the open
/// views of an admin endpoint on loopback refuse requests, too: the advice must not end the use of
/// tokens.
const SERVE_OTHERS: &str = "to serve other machines, let a proxy on this machine send `Host: localhost`, or demand tokens (the section `access`) and listen on an address that other machines reach; without tokens, an authenticating proxy in front needs `allow_unauthenticated`";

/// The advice to an operator of a node that pages of other sites should reach.
const SERVE_PAGES: &str = "to serve pages of other sites, demand tokens (the section `access`) and list the pages in `http.page_origins`; without tokens, an authenticating proxy in front needs `allow_unauthenticated`";

/// Refuses a request to another host than this machine. A browser sends such a request if the DNS
/// resolves the host of a page to this machine (DNS rebinding). The port serves one scheme.
pub(crate) fn check_host(
    scheme: Option<&str>,
    served: &str,
    host: Host<'_>,
) -> Result<(), ProblemDetails> {
    let misdirected = |mismatch: String| {
        let reason = format!(
            "{mismatch}: the node serves only requests to this machine over `{served}`; {SERVE_OTHERS}"
        );
        Err(ProblemDetails::new(StatusCode::MISDIRECTED_REQUEST, "misdirected", reason))
    };
    if let Some(scheme) = scheme.filter(|scheme| *scheme != served) {
        return misdirected(format!("the request is for a resource of `{scheme}`"));
    }
    match host {
        host if host.is_local() => Ok(()),
        Host::Name(name) => misdirected(format!("the request is for the host {name}")),
        Host::Address(address) => misdirected(format!("the request is for the host {address}")),
    }
}

/// Refuses a request that a page of another site made.
pub(crate) fn check_page(headers: &HeaderMap) -> Result<(), ProblemDetails> {
    let foreign = |mismatch: String| {
        let reason =
            format!("{mismatch}: the node does not serve web pages of other sites; {SERVE_PAGES}");
        Err(ProblemDetails::new(StatusCode::FORBIDDEN, "foreign", reason))
    };
    for origin in headers.get_all(ORIGIN) {
        if !origin.to_str().is_ok_and(is_local_origin) {
            let origin = String::from_utf8_lossy(origin.as_bytes());
            return foreign(format!("the `Origin` is {origin}"));
        }
    }
    // Unknown values are ignored (Fetch Metadata, section 2).
    if headers.get_all(SEC_FETCH_SITE).iter().any(|site| site == "cross-site") {
        return foreign("`Sec-Fetch-Site` is cross-site".to_owned());
    }
    Ok(())
}

/// Refuses an action of a browser that the page of the endpoint itself did not ask for. This also
/// protects an endpoint behind a proxy, which authenticates the user and not the page. A client
/// that is not a browser sends none of these headers.
pub fn check_action(head: &Parts) -> Result<(), ProblemDetails> {
    let Parts { headers, uri, .. } = head;
    if !headers.contains_key(ORIGIN) && !headers.contains_key(SEC_FETCH_SITE) {
        return Ok(());
    }
    let foreign = |reason| Err(ProblemDetails::new(StatusCode::FORBIDDEN, "foreign", reason));
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let host = uri.authority().map_or_else(|| text(HOST), |authority| authority.as_str());
    let origin = text(ORIGIN);
    let page = origin.split_once("://").map_or("", |(_, authority)| authority);
    if !page.eq_ignore_ascii_case(host) || headers.get_all(ORIGIN).iter().count() > 1 {
        return foreign(format!(
            "the `Origin` is `{origin}` and the `Host` is `{host}`: only the page of this endpoint \
             may send an action, and a proxy must not change these headers"
        ));
    }
    if headers.get_all(SEC_FETCH_SITE).iter().any(|site| site != "same-origin") {
        return foreign("`Sec-Fetch-Site` is not same-origin".to_owned());
    }
    if headers.get(&ADMIN).is_none_or(|value| value != "1") {
        let reason = "an action of a browser needs the header `X-Vvm-Admin: 1`".to_owned();
        return foreign(reason);
    }
    Ok(())
}

/// Whether a text is an origin on this machine. Browsers write an origin as `scheme://host:port`,
/// and as `null` if the origin of a page must stay secret.
fn is_local_origin(origin: &str) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else { return false };
    let is_scheme =
        scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    !scheme.is_empty() && is_scheme && Host::of(authority).is_some_and(Host::is_local)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_this_machine_are_local() {
        for local in
            ["http://localhost:3000", "https://127.0.0.1", "http://[::1]", "tauri://localhost"]
        {
            assert!(is_local_origin(local), "{local}");
        }
        for foreign in [
            "",
            "null",
            "localhost",
            "://localhost",
            "http://",
            "http://localhost/",
            "http://localhost http://localhost",
            "http://[::1]evil.com",
            "http://localhost:1@evil.com",
            "https://evil.example",
            "https://localhost.evil.example",
        ] {
            assert!(!is_local_origin(foreign), "{foreign}");
        }
    }
}
