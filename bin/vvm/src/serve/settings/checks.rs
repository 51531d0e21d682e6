//! The checks of a configuration that need several keys, or the kind of the storage.

use std::net::SocketAddr;

use ctl::{CommandError, StorageTarget};
use http_server::READ_BYTES;

use crate::config::{VvmConfig, without_login};

/// Refuses an address that other machines can reach, unless the configuration allows it, or clients
/// need tokens. Clients of the admin endpoint may need certificates instead.
pub(super) fn check_listens(config: &VvmConfig) -> Result<(), CommandError> {
    const CERTIFICATES: &str = "set `client_ca_file` in `[admin.tls]`, ";
    if config.access.is_some() && config.http.allow_unauthenticated {
        let why = "the section `access` demands tokens of all clients: remove one of the two";
        return Err(config.source.wrong(&["http", "allow_unauthenticated"], why));
    }
    let VvmConfig { http, admin, source, .. } = config;
    check_pages(config)?;
    for (section, listen, is_allowed, other_way) in [
        ("http", http.listen, http.allow_unauthenticated, ""),
        ("admin", admin.listen, admin.allow_unauthenticated, CERTIFICATES),
    ] {
        let is_safe = listen.ip().is_loopback() || config.access.is_some();
        let has_certificates = section == "admin" && admin.asks_for_certificates();
        if !is_safe && !has_certificates && !is_allowed {
            let why = format!(
                "other machines can reach {listen}, and the node has no authentication: listen on 127.0.0.1, \
                 demand tokens with the section `access`, {other_way}or put an authenticating proxy in front and set `{section}.allow_unauthenticated = true`"
            );
            return Err(source.wrong(&[section, "listen"], why));
        }
    }
    if http.listen == admin.listen && http.listen.port() != 0 {
        let why = format!("the API already listens on {}: choose another port", http.listen);
        return Err(source.wrong(&["admin", "listen"], why));
    }
    Ok(())
}

/// Checks the origins of web pages. A browser sends no token by itself, so without tokens every
/// page with such an origin could do everything in the name of each visitor.
fn check_pages(VvmConfig { http, access, source, .. }: &VvmConfig) -> Result<(), CommandError> {
    let key = ["http", "page_origins"];
    if access.is_none() && !http.page_origins.is_empty() {
        let why = "web pages may use the API only with tokens: add the section `access`";
        return Err(source.wrong(&key, why));
    }
    for origin in &http.page_origins {
        let rest = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
        let is_origin = rest.is_some_and(|rest| {
            !rest.is_empty() && !rest.contains(['/', '*', ' ', '?', '#', '@']) && rest.is_ascii()
        });
        if !is_origin {
            let why = format!(
                "`{}` is not the origin of a page: a scheme, a host and a port if it is not the usual one, such as https://app.example",
                without_login(origin)
            );
            return Err(source.wrong(&key, why));
        }
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

/// Allows only one seat on an embedded storage: one process has the whole storage, and a node holds
/// one seat.
pub(super) fn check_seats(
    VvmConfig { cluster, source, .. }: &VvmConfig,
    target: &StorageTarget,
) -> Result<(), CommandError> {
    let seats = cluster.seats(target.is_embedded()).get();
    if seats == 1 || !target.is_embedded() {
        return Ok(());
    }
    let why = format!(
        "with {target} only one node can run, and a node holds one seat: nobody could hold the other {}; \
         set `seats = 1`, or use Cassandra or DynamoDB",
        seats - 1
    );
    Err(source.wrong(&["cluster", "seats"], why))
}

/// Checks the cluster port. Whoever reaches the port without a certificate can act as a node, so
/// other machines may reach the port only with TLS.
pub(super) fn check_cluster(
    VvmConfig { cluster, http, admin, source, .. }: &VvmConfig,
    target: &StorageTarget,
) -> Result<(), CommandError> {
    let wrong = |key: &str, why: String| Err(source.wrong(&["cluster", key], why));
    let Some((listen, (reached_at, key))) = cluster.listen.zip(cluster.reached_at()) else {
        let idle = [("advertised", cluster.advertised.is_some()), ("tls", cluster.tls.is_some())];
        return match idle.iter().find(|(_, is_set)| *is_set) {
            Some((key, _)) => {
                let why = "without `cluster.listen` the node has no cluster port: set that key, or leave this one out";
                wrong(key, why.to_owned())
            }
            None => Ok(()),
        };
    };
    if target.is_embedded() {
        let why = format!(
            "with {target} only one node can run, and it has no other node to talk to: leave the key out, \
             or use Cassandra or DynamoDB"
        );
        return wrong("listen", why);
    }
    if !listen.ip().is_loopback() && cluster.tls.is_none() {
        let why = format!(
            "other machines can reach {listen}, and without TLS each of them can act as a node: \
             set `cert_file`, `key_file` and `ca_file` in `[cluster.tls]`, or listen on 127.0.0.1"
        );
        return wrong("listen", why);
    }
    let others = [("the API", http.listen), ("the admin endpoint", admin.listen)];
    if let Some((what, _)) = others.iter().find(|(_, other)| *other == listen && listen.port() != 0)
    {
        return wrong("listen", format!("{what} already listens on {listen}: choose another port"));
    }
    let unknown = format!("other nodes cannot reach this node at {reached_at}");
    if reached_at.ip().is_unspecified() {
        let why = format!("{unknown}: set an address that they can reach");
        return wrong("advertised", why);
    }
    if reached_at.port() == 0 {
        return wrong(key, format!("{unknown}: choose a port"));
    }
    Ok(())
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
