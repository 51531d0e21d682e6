//! The ports that a node listens on.

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
};

use tokio::net::TcpSocket;

use super::{finding::Finding, running};
use crate::config::VvmConfig;

pub(super) fn check(config: &VvmConfig) -> Vec<Finding> {
    let cluster = config.cluster.listen.map(|listen| ("cluster.listen", listen));
    let all = [("http.listen", config.http.listen), ("admin.listen", config.admin.listen)];
    all.into_iter().chain(cluster).map(|(key, listen)| of_port(key, listen)).collect()
}

fn of_port(key: &'static str, listen: SocketAddr) -> Finding {
    let error = match bind(listen) {
        Ok(_) => return Finding::ok("port", format!("`{key}` {listen} is free")),
        Err(error) => error,
    };
    match (error.kind(), running::listener(listen.port())) {
        (ErrorKind::AddrInUse, Some(process)) if process.name == "vvm" => Finding::warn(
            "port",
            format!("`{key}` {listen} is held by vvm, process {}", process.id),
            "stop that node before you start another one with this configuration",
        ),
        (ErrorKind::AddrInUse, holder) => {
            let by = |process: running::RunningProcess| {
                format!("{}, process {}", process.name, process.id)
            };
            let holder = holder.map_or_else(|| "a process of another user".to_owned(), by);
            let what = format!("`{key}` {listen} is held by {holder}");
            Finding::fail("port", what, format!("stop that process, or choose another `{key}`"))
        }
        (ErrorKind::AddrNotAvailable, _) => Finding::fail(
            "port",
            format!("`{key}` {listen}: the address does not belong to this machine"),
            format!("set `{key}` to an address of this machine (`ip address`), or to 0.0.0.0"),
        ),
        (ErrorKind::PermissionDenied, _) => Finding::fail(
            "port",
            format!("`{key}` {listen}: ports below 1024 need a right that this user does not have"),
            format!("set `{key}` to a higher port"),
        ),
        _ => Finding::fail("port", format!("`{key}` {listen}: {error}"), format!("change `{key}`")),
    }
}

/// Binds a socket to an address, and does not listen.
///
/// A node that starts meanwhile gets its port: Linux gives a port to several sockets that may reuse
/// it, while none of them listens. A simpler version listens, and takes the port for this moment.
fn bind(listen: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if listen.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(listen)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A node that started during the check ended with code 5.
    #[test]
    fn a_port_that_is_checked_can_be_taken() {
        let address = |host: &str| {
            let listener = TcpListener::bind((host, 0)).unwrap();
            listener.local_addr().unwrap()
        };
        for free in [address("127.0.0.1"), address("::")] {
            let checked = bind(free).unwrap();
            let node = TcpListener::bind(free).expect("the check holds the port");
            assert_eq!(bind(free).unwrap_err().kind(), ErrorKind::AddrInUse);
            drop((checked, node));
        }
    }
}
