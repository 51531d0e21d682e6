//! The files that a node may open: each connection is one.

use ctl::StorageTarget;
use http_api::{ClusterSettings, HttpApiSettings};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

use crate::config::VvmConfig;

/// Files that are no connections of clients or peers: those of the storage, the admin endpoint and
/// the node itself.
pub(crate) const OTHER_FILES: u64 = 250;

/// Raises the limit of open files, and returns the number of connections of clients that this limit
/// allows.
pub(super) fn allow_connections(config: &VvmConfig, target: &StorageTarget) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let maximum = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        warn!(%error, "raising the limit of open files failed");
    }
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let connections = config.http.connections.get();
    let room = room_for_clients(files, peer_connections(config, target));
    let room = usize::try_from(room).unwrap_or(usize::MAX);
    if room < connections {
        warn!(
            connections = room,
            wanted = connections,
            "connections limited by the number of open files: raise that limit (ulimit -n, LimitNOFILE)"
        );
    }
    connections.min(room)
}

/// How many connections of clients there is room for, beside the connections of peers. If there are
/// few files, the peers get at most half of them, because all nodes seldom have all their
/// connections.
pub(crate) fn room_for_clients(files: u64, peers: u64) -> u64 {
    let rest = files.saturating_sub(OTHER_FILES);
    (rest - peers.min(rest / 2)).max(1)
}

/// The most connections to the other nodes of the cluster, and from them.
pub(crate) fn peer_connections(config: &VvmConfig, target: &StorageTarget) -> u64 {
    if config.cluster.listen.is_none() {
        return 0;
    }
    let peers = config.cluster.seats(target.is_embedded()).get() as usize - 1;
    let http = &config.http;
    let followers = HttpApiSettings::most_followers(http.followers.get(), http.connections.get());
    // Each forwarded follower has a place at both nodes.
    let one_way = peers
        .saturating_mul(ClusterSettings::REQUESTS_PER_PEER)
        .saturating_add(peers.saturating_mul(ClusterSettings::FOLLOWERS_PER_PEER).min(followers));
    let from_peers = one_way.min(ClusterSettings::CONNECTIONS);
    one_way.saturating_add(from_peers) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node let its clients take the files that its connections to other nodes need. Then
    /// requests were not forwarded any more.
    #[test]
    fn clients_leave_files_to_the_other_nodes() {
        let peers = |more: &str, target: &StorageTarget| {
            peer_connections(&VvmConfig::of_text(more), target)
        };
        let server = || "[storage]\ndriver = \"dynamodb\"\n".to_owned();
        let target = VvmConfig::of_text(&server());
        let target = target.storage.to_target(&target.source).unwrap();
        let cluster = "[cluster]\nlisten = \"127.0.0.1:8823\"\n";
        assert_eq!(peers("", &target), 0, "without a port the node has no peers");
        assert_eq!(peers(&format!("{cluster}seats = 1\n"), &target), 0);
        assert_eq!(peers(&format!("{cluster}seats = 3\n"), &target), 2 * 2 * (64 + 256));
        // All followers together are limited, and so is the port.
        assert_eq!(peers(&format!("{cluster}seats = 16\n"), &target), 2 * (15 * 64 + 2_000));
        let many = peers(&format!("{cluster}seats = 1001\n"), &target);
        assert_eq!(many, 64_000 + 2_000 + 8_192);

        assert_eq!(room_for_clients(15_250, 0), 15_000);
        assert_eq!(room_for_clients(15_250, 1_280), 13_720);
        assert_eq!(room_for_clients(1_250, 64_000), 500, "clients get half in any case");
        assert_eq!(room_for_clients(100, 1_280), 1);
    }
}
