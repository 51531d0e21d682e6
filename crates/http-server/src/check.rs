//! Checks of a request that RFC 9110 and RFC 9112 demand and hyper does not make.

use hyper::{
    Method, StatusCode, Version,
    header::{EXPECT, HOST, TRANSFER_ENCODING},
    http::request::Parts,
};
use tracing::info;

use crate::{
    authority::Host,
    client_lines::{ClientLine, beginning},
    problem::ProblemDetails,
    server::RequestClient,
    web_pages,
};

/// Refuses a request that the standards refuse. If the node serves only this machine, it also
/// refuses a request of a foreign web page.
pub fn check(head: &Parts, only_local: bool) -> Result<(), ProblemDetails> {
    let client = head.extensions.get::<RequestClient>();
    let checked = host(head).and_then(|host| {
        transfer_coding(head)?;
        expectation(head)?;
        match host {
            Some(host) if only_local => {
                let served = client.map_or("http", RequestClient::scheme);
                web_pages::check_host(head.uri.scheme_str(), served, host)?;
            }
            _ => {}
        }
        if only_local { web_pages::check_page(&head.headers) } else { Ok(()) }
    });
    checked.inspect_err(|problem| {
        let left_out = client.and_then(|client| client.lines().next(ClientLine::Refused, None));
        let Some(left_out) = left_out else { return };
        let (status, reason) = (problem.status().as_u16(), beginning(problem.reason()));
        let peer = client.map(|client| tracing::field::display(client.peer()));
        info!(peer, status, reason, left_out, "request refused");
    })
}

/// The host of a request. Only HTTP/1.0 may leave it out.
fn host(head: &Parts) -> Result<Option<Host<'_>>, ProblemDetails> {
    let invalid = |text: &str| {
        ProblemDetails::bad_request(format!(
            "{text} is not a host with an optional port (RFC 9112, section 3.2)"
        ))
    };
    let mut hosts = head.headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (_, Some(_)) => {
            return Err(ProblemDetails::bad_request("the request has more than one `Host`"));
        }
        (None, None) if head.version >= Version::HTTP_11 => {
            return Err(ProblemDetails::bad_request(
                "the request has no `Host`, which HTTP/1.1 demands",
            ));
        }
        (None, None) => None,
        (Some(host), None) => {
            let text = host.to_str().map_err(|_| invalid("the value of `Host`"))?;
            Some(Host::of(text).ok_or_else(|| invalid(&format!("`{text}`")))?)
        }
    };
    if head.method == Method::CONNECT {
        return Err(not_implemented("the node does not support CONNECT"));
    }
    match (head.uri.authority(), head.uri.scheme()) {
        (None, _) => Ok(host),
        // The target of the request counts, and `Host` does not (RFC 9112, section 3.2.2).
        (Some(target), Some(_)) => {
            let target = target.as_str();
            Host::of(target).map(Some).ok_or_else(|| invalid(&format!("`{target}`")))
        }
        (Some(target), None) => {
            let reason =
                format!("`{target}` is not the target of a request: a path begins with `/`");
            Err(ProblemDetails::bad_request(reason))
        }
    }
}

/// Checks the coding of a body. hyper accepts a body if the last coding is `chunked`, and decodes
/// no other coding.
fn transfer_coding(head: &Parts) -> Result<(), ProblemDetails> {
    let codings: Vec<&str> = transfer_codings(head).collect();
    if let Some(other) = codings.iter().find(|coding| !coding.eq_ignore_ascii_case("chunked")) {
        return Err(not_implemented(format!(
            "the transfer coding `{other}` is not supported: send `chunked`"
        )));
    }
    match codings.len() {
        0 | 1 => Ok(()),
        _ => Err(ProblemDetails::bad_request(
            "the body is chunked more than once (RFC 9112, section 7)",
        )),
    }
}

/// Refuses all expectations except a single `100-continue`. hyper answers no other form of this
/// expectation with 100 Continue, and the client would wait for 100 Continue in vain. HTTP/1.0 has
/// no expectations (RFC 9110, section 10.1.1).
fn expectation(head: &Parts) -> Result<(), ProblemDetails> {
    let mut all = head.headers.get_all(EXPECT).iter();
    let (first, second) = (all.next(), all.next());
    let is_supported = match (first, second) {
        (None, _) => true,
        (Some(only), None) => only.as_bytes().eq_ignore_ascii_case(b"100-continue"),
        (Some(_), Some(_)) => false,
    };
    if is_supported || head.version < Version::HTTP_11 {
        return Ok(());
    }
    let reason = "the expectation is not supported: send one `Expect` with `100-continue` alone";
    Err(ProblemDetails::new(StatusCode::EXPECTATION_FAILED, "expectation_failed", reason))
}

fn not_implemented(reason: impl Into<String>) -> ProblemDetails {
    ProblemDetails::new(StatusCode::NOT_IMPLEMENTED, "not_implemented", reason)
}

/// The transfer codings, over any number of header lines. A value that is not text becomes a coding
/// that no check knows.
fn transfer_codings(head: &Parts) -> impl Iterator<Item = &str> {
    let values = head.headers.get_all(TRANSFER_ENCODING).into_iter();
    let members = values.flat_map(|value| value.to_str().unwrap_or("?").split(','));
    members.map(|member| member.trim_matches([' ', '\t'])).filter(|member| !member.is_empty())
}
