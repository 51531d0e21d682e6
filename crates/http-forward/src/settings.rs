//! The settings of the cluster port.

use std::net::SocketAddr;

use http_server::ClusterTls;

/// The settings of the cluster port.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    /// The address on which the node listens for its peers.
    pub listen: SocketAddr,
    /// Mutual TLS. Without it the port must be on loopback.
    pub tls: Option<ClusterTls>,
    /// The number of connections from peers. A peer opens at most
    /// [`REQUESTS_PER_PEER`](Self::REQUESTS_PER_PEER) and
    /// [`FOLLOWERS_PER_PEER`](Self::FOLLOWERS_PER_PEER).
    pub connections: usize,
}

impl ClusterSettings {
    /// The most requests that use a connection to one peer at the same time, besides followers.
    pub const REQUESTS_PER_PEER: usize = 64;

    /// The most logs that clients of a node follow at one peer. Each has a connection.
    pub const FOLLOWERS_PER_PEER: usize = 256;

    /// The default of [`connections`](Self::connections).
    pub const CONNECTIONS: usize = 8_192;

    /// The default settings: no TLS, and 8,192 connections.
    pub fn new(listen: SocketAddr) -> ClusterSettings {
        ClusterSettings { listen, tls: None, connections: ClusterSettings::CONNECTIONS }
    }

    /// Refuses a port that would trust other machines.
    pub fn check(&self) -> Result<(), ClusterSettingsError> {
        match self.tls.is_some() || self.listen.ip().to_canonical().is_loopback() {
            true => Ok(()),
            false => Err(ClusterSettingsError::Open(self.listen)),
        }
    }
}

/// The reason why settings of a cluster port cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClusterSettingsError {
    /// Other machines could reach the port, and the port would trust them.
    #[error("the cluster port {0} can be reached by other machines, so it needs TLS")]
    Open(SocketAddr),
}
