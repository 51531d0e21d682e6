//! The host and the port of a request, as RFC 3986 writes them.

use std::net::{IpAddr, Ipv6Addr};

/// The host of an authority. The port is ignored, because it may be that of a proxy or of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host<'a> {
    Name(&'a str),
    Address(IpAddr),
}

impl<'a> Host<'a> {
    /// Reads `host` or `host:port`. Returns `None` for any other text: `http` allows no empty host,
    /// and `Host` allows no user and no zone of an address.
    pub(crate) fn of(authority: &'a str) -> Option<Host<'a>> {
        if let Some(rest) = authority.strip_prefix('[') {
            let (address, rest) = rest.split_once(']')?;
            let address: Ipv6Addr = address.parse().ok()?;
            let is_whole = rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port);
            return is_whole.then_some(Host::Address(address.into()));
        }
        let (host, port) = authority.split_once(':').unwrap_or((authority, ""));
        if !is_port(port) || !is_name(host) {
            return None;
        }
        Some(host.parse().map_or(Host::Name(host), Host::Address))
    }

    /// Whether only this machine can be reached under the name or the address.
    pub(crate) fn is_local(self) -> bool {
        match self {
            // A name with a dot at its end is absolute (RFC 1034). `localhost.` means the same as
            // `localhost`.
            Host::Name(name) => {
                name.strip_suffix('.').unwrap_or(name).eq_ignore_ascii_case("localhost")
            }
            Host::Address(address) => address.to_canonical().is_loopback(),
        }
    }
}

/// Whether a text is a port. The port may be left out after its colon.
fn is_port(text: &str) -> bool {
    text.is_empty()
        || (text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok())
}

/// Whether a text is a `reg-name` of RFC 3986 and not empty.
fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let is_fit = match byte {
            b'%' => (0..2).all(|_| bytes.next().is_some_and(|byte| byte.is_ascii_hexdigit())),
            _ => byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&byte),
        };
        if !is_fit {
            return false;
        }
    }
    !text.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_local(authority: &str) -> Option<bool> {
        Host::of(authority).map(Host::is_local)
    }

    #[test]
    fn a_host_is_local_only_if_it_is_this_machine_for_everybody() {
        for local in [
            "localhost",
            "LocalHost:8822",
            "localhost:",
            "localhost.",
            "127.0.0.1:8822",
            "127.1.2.3",
            "[::1]",
            "[::1]:8822",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert_eq!(is_local(local), Some(true), "{local}");
        }
        for foreign in [
            "evil.example",
            "localhost.evil.example:8822",
            "127.0.0.1.evil.example",
            "localhost..",
            "%6cocalhost",
            "10.0.0.1:8822",
            "0.0.0.0:8822",
            "127.0.0.1.",
            "127.1",
            "[::2]",
            "[::]:1",
        ] {
            assert_eq!(is_local(foreign), Some(false), "{foreign}");
        }
    }

    /// Only the part before `]` or before the first `:` was checked. So `[::1]evil.com` and
    /// `localhost:1@evil.com` counted as this machine.
    #[test]
    fn what_is_no_host_with_a_port_is_refused_as_a_whole() {
        for invalid in [
            "",
            ":8822",
            "[::1]evil.com",
            "[::1]:1@evil.com",
            "[::1",
            "[]",
            "[127.0.0.1]",
            "[::1%25lo]",
            "[fe80::1%eth0]:1",
            "::1",
            "localhost:1@evil.com",
            "user@localhost",
            "user:word@localhost",
            "localhost:http",
            "localhost:+1",
            "localhost:65536",
            "localhost:1:2",
            "localhost/",
            "local host",
            "localhost%",
            "localhost%4",
            "localhost\u{e9}",
        ] {
            assert_eq!(is_local(invalid), None, "{invalid}");
        }
    }
}
