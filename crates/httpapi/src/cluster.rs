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
mod read_places;
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
    peer::{ONCE_WITHIN, Peer, PeerSlot},
    peers::Peers,
    quota::{QuotaLimits, QuotaShare},
    read_places::ReadPlaces,
    successor::asked_successor,
};
pub use self::{
    port::ClusterPort,
    settings::{ClusterSettings, ClusterSettingsError},
    tls::ClusterTls,
};

/// Whether a node has peers, to which it forwards requests.
#[derive(Clone, Debug)]
pub(crate) enum ClusterMode {
    Alone,
    /// Without keys for TLS, the peers are on the same machine.
    WithPeers {
        tls: Option<ClusterTls>,
    },
}

/// The parts of the API that only a node of a cluster has.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) peers: Peers,
    pub(crate) parking: Parking,
}

impl Cluster {
    /// `limits` bounds the requests of one partition. A peer may have twice as many, so that one
    /// partition that is slow leaves room for the others.
    pub(crate) fn new(tls: Option<ClusterTls>, limits: QuotaLimits, clock: Clock) -> Cluster {
        let QuotaLimits { requests, bytes } = limits;
        let of_peer = QuotaLimits { requests: 2 * requests, bytes: 2 * bytes };
        let parking = Parking::new(limits, clock.clone());
        Cluster { peers: Peers::new(tls, of_peer, clock), parking }
    }
}
