//! Requests of web pages. A browser sends some to this machine for any page that its user looks at, and nobody is asked here who he is.

use std::net::IpAddr;

use hyper::{
    StatusCode,
    header::{HOST, HeaderMap, ORIGIN},
};

use crate::reply::Trouble;

/// Refuses what is asked of another name than that of this machine, or for a page of another one.
pub(crate) fn refuse(headers: &HeaderMap) -> Result<(), Trouble> {
    for name in [HOST, ORIGIN] {
        for value in headers.get_all(&name) {
            if !value.to_str().is_ok_and(is_local) {
                let reason = format!(
                    "only this machine is served here, and `{name}` names another: have something that asks who it is in front of it, and \
                     set `anybody_may_do_everything`"
                );
                return Err(Trouble::new(StatusCode::FORBIDDEN, "foreign", reason));
            }
        }
    }
    Ok(())
}

/// `localhost`, or an address of this machine, with or without scheme and port.
fn is_local(authority: &str) -> bool {
    let authority = authority.split_once("://").map_or(authority, |(_, rest)| rest);
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(rest, |(host, _)| host),
        None => authority.split_once(':').map_or(authority, |(host, _)| host),
    };
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine() {
        for local in [
            "localhost",
            "LOCALHOST:8822",
            "127.0.0.1:8822",
            "127.1.2.3",
            "[::1]:8822",
            "http://localhost:3000",
            "https://127.0.0.1",
            "http://[::1]",
        ] {
            assert!(is_local(local), "{local}");
        }
        for foreign in [
            "",
            "null",
            "evil.example",
            "localhost.evil.example:8822",
            "127.0.0.1.evil.example",
            "https://evil.example",
            "10.0.0.1:8822",
            "[::2]",
            "http://",
        ] {
            assert!(!is_local(foreign), "{foreign}");
        }
    }
}
