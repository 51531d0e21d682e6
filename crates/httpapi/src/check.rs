//! Checks of a request that RFC 9110 and RFC 9112 demand and hyper does not make.

use hyper::{
    Method, StatusCode, Version,
    header::{EXPECT, HOST, HeaderName, TRANSFER_ENCODING},
    http::request::Parts,
};
use tracing::info;

use crate::{authority::Host, foreign, reply::Trouble, server::Peer};

/// Refuses a request that the standards refuse. If the node serves only this machine, it also
/// refuses a request of a foreign web page.
pub(crate) fn check(head: &Parts, only_local: bool) -> Result<(), Trouble> {
    let checked = host(head).and_then(|host| {
        transfer_coding(head)?;
        expectation(head)?;
        match host {
            Some(host) if only_local => foreign::check_host(head.uri.scheme_str(), host)?,
            _ => {}
        }
        if only_local { foreign::check_page(&head.headers) } else { Ok(()) }
    });
    checked.inspect_err(|trouble| {
        let (status, reason) = (trouble.status().as_u16(), trouble.reason());
        let peer = head.extensions.get().map(|Peer(peer)| tracing::field::display(peer));
        info!(peer, status, reason, "request refused");
    })
}

/// The host of a request. Only HTTP/1.0 may leave it out.
fn host(head: &Parts) -> Result<Option<Host<'_>>, Trouble> {
    let invalid = |text: &str| {
        Trouble::bad_request(format!(
            "`{text}` is no host with an optional port (RFC 9112, section 3.2)"
        ))
    };
    let mut hosts = head.headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (_, Some(_)) => return Err(Trouble::bad_request("there is more than one `Host`")),
        (None, None) if head.version >= Version::HTTP_11 => {
            return Err(Trouble::bad_request("there is no `Host`, which HTTP/1.1 demands"));
        }
        (None, None) => None,
        (Some(host), None) => {
            let text = host.to_str().map_err(|_| invalid("what `Host` says"))?;
            Some(Host::of(text).ok_or_else(|| invalid(text))?)
        }
    };
    if head.method == Method::CONNECT {
        return Err(not_implemented("there are no tunnels here"));
    }
    match (head.uri.authority(), head.uri.scheme()) {
        (None, _) => Ok(host),
        // The target of the request counts, and `Host` does not (RFC 9112, section 3.2.2).
        (Some(target), Some(_)) => {
            let target = target.as_str();
            Host::of(target).map(Some).ok_or_else(|| invalid(target))
        }
        (Some(target), None) => {
            let reason = format!("`{target}` is no target of a request: a path begins with `/`");
            Err(Trouble::bad_request(reason))
        }
    }
}

/// Checks the coding of a body. hyper accepts a body if the last coding is `chunked`, and decodes
/// no other coding.
fn transfer_coding(head: &Parts) -> Result<(), Trouble> {
    let codings: Vec<&str> = members(head, &TRANSFER_ENCODING).collect();
    if let Some(other) = codings.iter().find(|coding| !coding.eq_ignore_ascii_case("chunked")) {
        return Err(not_implemented(format!("the transfer coding `{other}` is not known")));
    }
    match codings.len() {
        0 | 1 => Ok(()),
        _ => Err(Trouble::bad_request("a body is chunked once (RFC 9112, section 7)")),
    }
}

/// Refuses unknown expectations. HTTP/1.0 has no expectations (RFC 9110, section 10.1.1).
fn expectation(head: &Parts) -> Result<(), Trouble> {
    let mut all = members(head, &EXPECT);
    match all.find(|one| !one.eq_ignore_ascii_case("100-continue")) {
        Some(other) if head.version >= Version::HTTP_11 => {
            let reason = format!("the expectation `{other}` is not known, but only `100-continue`");
            Err(Trouble::new(StatusCode::EXPECTATION_FAILED, "expectation_failed", reason))
        }
        _ => Ok(()),
    }
}

fn not_implemented(reason: impl Into<String>) -> Trouble {
    Trouble::new(StatusCode::NOT_IMPLEMENTED, "not_implemented", reason)
}

/// The members of a list, over any number of header lines. A value that is no text becomes a member
/// that no check knows.
fn members<'h>(head: &'h Parts, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    let values = head.headers.get_all(name).into_iter();
    let members = values.flat_map(|value| value.to_str().unwrap_or("?").split(','));
    members.map(|member| member.trim_matches([' ', '\t'])).filter(|member| !member.is_empty())
}
