//! The ports that a node listens on.

use std::{
    io::ErrorKind,
    net::{SocketAddr, TcpListener},
};

use super::{finding::Finding, running};
use crate::config::VvmConfig;

pub(super) fn check(config: &VvmConfig) -> Vec<Finding> {
    let cluster = config.cluster.listen.map(|listen| ("cluster.listen", listen));
    let all = [("http.listen", config.http.listen), ("admin.listen", config.admin.listen)];
    all.into_iter().chain(cluster).map(|(key, listen)| of_port(key, listen)).collect()
}

fn of_port(key: &'static str, listen: SocketAddr) -> Finding {
    let error = match TcpListener::bind(listen) {
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
