//! The section `cluster` of the configuration.

use std::{
    net::SocketAddr,
    num::{NonZeroU16, NonZeroU32},
    path::PathBuf,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{address::address, seconds::Seconds};

/// The number of seats where any number of nodes may use the storage.
const USUAL_SEATS: NonZeroU32 = NonZeroU32::new(16).expect("16 is not zero");

/// The default of `drain_seconds`.
const USUAL_DRAIN: Duration = Duration::from_secs(30);

/// The section `cluster`: the nodes that share the partitions.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ClusterConfig {
    /// The number of seats. This many nodes work at the same time, and the others wait.
    seats: Option<NonZeroU16>,
    /// The address of the cluster port, where nodes talk to each other. Without it the node neither
    /// forwards requests nor takes forwarded ones.
    #[serde(deserialize_with = "address")]
    pub(crate) listen: Option<SocketAddr>,
    /// The address where other nodes reach the cluster port. The default is `listen`.
    #[serde(deserialize_with = "address")]
    pub(crate) advertised: Option<SocketAddr>,
    /// The most time for the partitions to move to other nodes before the node stops.
    pub(crate) drain_seconds: Seconds,
    /// The certificates of the cluster port.
    pub(crate) tls: Option<ClusterTlsConfig>,
}

/// The section `cluster.tls`: the files that let nodes recognize each other.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClusterTlsConfig {
    /// The certificate of this node, in PEM.
    pub(crate) cert_file: PathBuf,
    /// The key of the certificate, in PEM.
    pub(crate) key_file: PathBuf,
    /// The certificates of the authorities of nodes of the cluster, in PEM.
    pub(crate) ca_file: PathBuf,
}

impl Default for ClusterConfig {
    fn default() -> ClusterConfig {
        ClusterConfig {
            seats: None,
            listen: None,
            advertised: None,
            drain_seconds: Seconds::of(USUAL_DRAIN),
            tls: None,
        }
    }
}

impl ClusterConfig {
    /// The number of seats in force. Only one process can use an embedded storage.
    pub(crate) fn seats(&self, is_embedded: bool) -> NonZeroU32 {
        let usual = if is_embedded { NonZeroU32::MIN } else { USUAL_SEATS };
        self.seats.map_or(usual, NonZeroU32::from)
    }

    /// The address where other nodes reach the cluster port, and the key that sets it; `None`
    /// without a cluster port.
    pub(crate) fn reached_at(&self) -> Option<(SocketAddr, &'static str)> {
        let listen = self.listen?;
        Some(self.advertised.map_or((listen, "listen"), |at| (at, "advertised")))
    }
}
