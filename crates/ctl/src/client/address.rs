//! The address of a node.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

/// The address of the API or of the admin endpoint of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeAddress {
    /// Whether the address says that the port has TLS. Without a scheme it says nothing.
    pub is_secured: Option<bool>,
    /// A name, or an IP without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl NodeAddress {
    /// The host and the port, as the header `Host` has them.
    pub fn authority(&self) -> String {
        let NodeAddress { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// Returns whether the address is of this machine, so that no other machine reads what is sent.
    pub fn is_loopback(&self) -> bool {
        let ip = self.host.parse::<IpAddr>();
        ip.map_or(self.host == "localhost", |ip| ip.is_loopback())
    }
}

impl From<SocketAddr> for NodeAddress {
    fn from(address: SocketAddr) -> NodeAddress {
        NodeAddress { is_secured: None, host: address.ip().to_string(), port: address.port() }
    }
}

impl FromStr for NodeAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<NodeAddress, &'static str> {
        const EXPECTED: &str = "a host and a port are expected, such as \
                                https://node1.example:8822 for an API or 127.0.0.1:55555 for an \
                                admin endpoint";
        let (is_secured, rest) = match text.split_once("://") {
            Some(("https", rest)) => (Some(true), rest),
            Some(("http", rest)) => (Some(false), rest),
            Some(_) => return Err(EXPECTED),
            None => (None, text),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = rest.rsplit_once(':').ok_or(EXPECTED)?;
        let port = port.parse().map_err(|_| EXPECTED)?;
        let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(ip) => ip.parse().ok().filter(IpAddr::is_ipv6).ok_or(EXPECTED)?.to_string(),
            None => host.to_owned(),
        };
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if host.is_empty() || (!host.contains(':') && !host.bytes().all(is_name)) {
            return Err(EXPECTED);
        }
        if host.contains(':') && host.parse::<IpAddr>().is_err() {
            return Err(EXPECTED);
        }
        Ok(NodeAddress { is_secured, host, port })
    }
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.is_secured {
            Some(true) => "https://",
            Some(false) => "http://",
            None => "",
        };
        write!(f, "{scheme}{}", self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port_and_may_have_a_scheme() {
        for (text, is_secured, host, authority) in [
            ("127.0.0.1:1", None, "127.0.0.1", "127.0.0.1:1"),
            ("node1.example:1", None, "node1.example", "node1.example:1"),
            ("[::1]:1", None, "::1", "[::1]:1"),
            ("https://[::1]:1", Some(true), "::1", "[::1]:1"),
            ("https://node1:1/", Some(true), "node1", "node1:1"),
            ("http://localhost:1", Some(false), "localhost", "localhost:1"),
        ] {
            let address: NodeAddress = text.parse().unwrap();
            assert_eq!((address.is_secured, &*address.host, address.port), (is_secured, host, 1));
            assert_eq!(address.authority(), authority);
            assert_eq!(address.to_string(), text.trim_end_matches('/'));
        }
        for wrong in [
            "",
            "node1",
            ":1",
            "[]:1",
            "[node1]:1",
            "[127.0.0.1]:1",
            "::1",
            "::1:1x",
            "node1:",
            "node1:65536",
            "ftp://node1:1",
            "https://",
            "https://node1:1/x",
            "https://user@node1:1",
            "a b:1",
            "a:b:1",
        ] {
            assert!(wrong.parse::<NodeAddress>().is_err(), "{wrong}");
        }
    }
}
