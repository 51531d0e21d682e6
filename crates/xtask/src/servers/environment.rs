//! Servers that run already, with addresses in the environment.

use std::{
    env,
    net::{TcpStream, ToSocketAddrs},
    time::Duration,
};

use super::{ServerKind, Variables};
use crate::error::{Result, failed};

/// Returns the servers that the environment names, and the kinds that must be started.
pub(super) fn split_by_environment(kinds: &[ServerKind]) -> Result<(Variables, Vec<ServerKind>)> {
    let (mut given, mut missing) = (Vec::new(), Vec::new());
    for &kind in kinds {
        let variable = kind.variable();
        match env::var(variable) {
            Ok(value) if answers(&value) => given.push((variable, value)),
            Ok(value) => {
                return failed(format!(
                    "{variable} is set, but no server answers at {value}: start the server, or run `unset {variable}` to let \
                     this command start one"
                ));
            }
            Err(_) => missing.push(kind),
        }
    }
    Ok((given, missing))
}

/// Returns whether something listens at every address of a variable's value.
fn answers(value: &str) -> bool {
    value.split(',').all(|address| {
        let sockets = host_and_port(address).to_socket_addrs();
        sockets.is_ok_and(|mut all| {
            all.any(|s| TcpStream::connect_timeout(&s, Duration::from_secs(3)).is_ok())
        })
    })
}

fn host_and_port(address: &str) -> String {
    let (host, port) = match address.split_once("://") {
        Some(("https", host)) => (host, 443),
        Some((_, host)) => (host, 80),
        None => return address.to_owned(),
    };
    let host = host.trim_end_matches('/');
    if host.contains(':') { host.to_owned() } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::ports;

    #[test]
    fn an_endpoint_without_port_has_that_of_its_scheme() {
        assert_eq!(host_and_port("127.0.0.1:9042"), "127.0.0.1:9042");
        assert_eq!(host_and_port("http://localhost:8000/"), "localhost:8000");
        assert_eq!(host_and_port("http://localhost"), "localhost:80");
        assert_eq!(host_and_port("https://db.example/"), "db.example:443");
    }

    #[test]
    fn every_address_has_to_answer() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let there = listener.local_addr().unwrap();
        let gone = format!("127.0.0.1:{}", ports::free(&["127.0.0.1"], 1).unwrap()[0]);
        assert!(answers(&there.to_string()));
        assert!(answers(&format!("http://{there}")));
        assert!(!answers(&format!("{there},{gone}")));
        assert!(!answers("not an address"));
    }
}
