//! The checks of a configuration that need several keys, or the kind of the storage.

use std::net::SocketAddr;

use httpapi::READ_BYTES;
use tracing::warn;

use crate::{command_error::CommandError, config::VvmConfig, storage_target::StorageTarget};

/// Refuses an address that other machines can reach, unless the configuration allows it: neither
/// the API nor the admin endpoint has authentication.
pub(super) fn check_listens(config: &VvmConfig) -> Result<(), CommandError> {
    let VvmConfig { http, admin, source, .. } = config;
    for (section, listen, is_allowed) in [
        ("http", http.listen, http.allow_unauthenticated),
        ("admin", admin.listen, admin.allow_unauthenticated),
    ] {
        if listen.ip().is_loopback() {
            continue;
        }
        if !is_allowed {
            let why = format!(
                "other machines can reach {listen}, and the node has no authentication: listen on 127.0.0.1, \
                 or put an authenticating proxy in front and set `{section}.allow_unauthenticated = true`"
            );
            return Err(source.wrong(&[section, "listen"], why));
        }
        warn!(section, %listen, "listening without authentication");
    }
    if http.listen == admin.listen && http.listen.port() != 0 {
        let why = format!("the API already listens on {}: choose another port", http.listen);
        return Err(source.wrong(&["admin", "listen"], why));
    }
    Ok(())
}

/// Checks the advertised address. Other nodes give this address to their clients.
pub(super) fn check_advertised(
    VvmConfig { node, source, .. }: &VvmConfig,
    target: &StorageTarget,
    advertised: SocketAddr,
) -> Result<(), CommandError> {
    if target.is_embedded() {
        return Ok(());
    }
    let unknown = format!("clients of other nodes cannot reach this node at {advertised}");
    if advertised.ip().is_unspecified() {
        let why = format!("{unknown}: set an address that they can reach");
        return Err(source.wrong(&["node", "advertised"], why));
    }
    if advertised.port() == 0 {
        let key =
            if node.advertised.is_some() { ["node", "advertised"] } else { ["http", "listen"] };
        return Err(source.wrong(&key, format!("{unknown}: choose a port")));
    }
    Ok(())
}

/// Allows only one seat on an embedded storage: one process has the whole storage, and a node leads
/// one seat.
pub(super) fn check_seats(
    VvmConfig { node, source, .. }: &VvmConfig,
    target: &StorageTarget,
) -> Result<(), CommandError> {
    let seats = node.seats.get();
    if seats == 1 || !target.is_embedded() {
        return Ok(());
    }
    let why = format!(
        "with {target} only one node can run, and a node leads one seat: the other {} would never have a leader, \
         and their partitions would always answer 503: set `seats = 1`, or use Cassandra or DynamoDB",
        seats - 1
    );
    Err(source.wrong(&["node", "seats"], why))
}

/// Checks the limits of memory. A body must fit into the memory for all bodies. Logs may take half
/// of the memory for answers, and must leave room for an ordinary answer.
pub(super) fn check_memory(VvmConfig { http, source, .. }: &VvmConfig) -> Result<(), CommandError> {
    let (body, bodies) = (http.body_bytes.get(), http.bodies_bytes.get());
    if body > bodies {
        let why = format!(
            "all bodies together may have {bodies} bytes (`http.bodies_bytes`): set this limit to that number or less"
        );
        return Err(source.wrong(&["http", "body_bytes"], why));
    }
    let (logs, answers) = (http.logs.get(), http.answers_bytes.get());
    // A quarter of the memory is reserved for large answers.
    let ordinary = answers - answers / 4;
    let max_logs = (answers / 2).min(ordinary.saturating_sub(READ_BYTES)) / READ_BYTES;
    if logs > max_logs {
        let why = format!(
            "{logs} logs at the same time leave too little memory for documents and lists: each log takes \
             {READ_BYTES} bytes, and `http.answers_bytes = {answers}` is enough for {max_logs} \
             logs; set fewer logs, or more bytes"
        );
        return Err(source.wrong(&["http", "logs"], why));
    }
    Ok(())
}
