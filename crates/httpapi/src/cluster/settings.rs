//! The settings of the cluster port.

use std::net::SocketAddr;

use super::tls::{ClusterTls, ClusterTlsError, ClusterTlsFiles};

/// The settings of the cluster port.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    /// The address on which the node listens for its peers.
    pub listen: SocketAddr,
    /// The files for mutual TLS. Without them the port must be on loopback.
    pub tls: Option<ClusterTlsFiles>,
    /// The number of connections from peers. A peer opens at most 64.
    pub connections: usize,
}

impl ClusterSettings {
    /// The default settings: no TLS, and 1,024 connections.
    pub fn new(listen: SocketAddr) -> ClusterSettings {
        ClusterSettings { listen, tls: None, connections: 1_024 }
    }

    /// Reads the files for TLS.
    pub(crate) fn read_tls(&self) -> Result<Option<ClusterTls>, ClusterSettingsError> {
        match &self.tls {
            Some(files) => Ok(Some(ClusterTls::read(files)?)),
            None if self.listen.ip().to_canonical().is_loopback() => Ok(None),
            None => Err(ClusterSettingsError::Open(self.listen)),
        }
    }
}

/// The reason why settings of a cluster port cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClusterSettingsError {
    /// Other machines could reach the port, and the port would trust them.
    #[error("the cluster port {0} can be reached by other machines, so it needs TLS")]
    Open(SocketAddr),
    /// A file for TLS is missing or unusable.
    #[error(transparent)]
    Tls(#[from] ClusterTlsError),
}
