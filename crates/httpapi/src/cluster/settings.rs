//! The settings of the cluster port.

use std::net::SocketAddr;

use super::tls::ClusterTls;

/// The settings of the cluster port.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    /// The address on which the node listens for its peers.
    pub listen: SocketAddr,
    /// Mutual TLS. Without it the port must be on loopback.
    pub tls: Option<ClusterTls>,
    /// The number of connections from peers. A peer opens at most 320: 64 for
    /// requests, and 256 for clients that follow logs.
    pub connections: usize,
}

impl ClusterSettings {
    /// The default settings: no TLS, and 8,192 connections.
    pub fn new(listen: SocketAddr) -> ClusterSettings {
        ClusterSettings { listen, tls: None, connections: 8_192 }
    }

    /// Refuses a port that would trust other machines.
    pub(crate) fn check(&self) -> Result<(), ClusterSettingsError> {
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
