//! The port on which nodes of a cluster forward requests to each other, and the connections to
//! these ports.

mod body;
mod connection;
mod mark;
mod metrics;
mod parking;
mod peer;
mod peers;
mod port;
mod quota;
mod settings;
mod successor;
mod tls;

use clock::Clock;

pub(crate) use self::{
    body::PeerBody,
    connection::PeerFailure,
    mark::ForwardMark,
    metrics::ForwardMetrics,
    parking::{Parked, ParkedPartition, Parking},
    peer::{ONCE_WITHIN, Peer},
    peers::Peers,
    quota::{QuotaLimits, QuotaShare},
    successor::asked_successor,
};
pub use self::{
    port::ClusterPort,
    settings::{ClusterSettings, ClusterSettingsError},
    tls::ClusterTls,
};

/// The parts of the API that only a node of a cluster has.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) peers: Peers,
    pub(crate) parking: Parking,
}

impl Cluster {
    /// `limits` bounds the requests of one partition, and those of one peer.
    pub(crate) fn new(tls: Option<ClusterTls>, limits: QuotaLimits, clock: Clock) -> Cluster {
        Cluster { peers: Peers::new(tls, limits, clock), parking: Parking::new(limits) }
    }
}
