//! The peers of a node.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use base::locks::lock;
use clock::Clock;
use http_server::ClusterTls;

use crate::{
    limits::{MostWaiting, PeerLimits},
    peer::Peer,
};

/// How often connections without a request are checked.
const UPKEEP_EVERY: Duration = Duration::from_millis(500);

/// The peers of a node.
#[derive(Debug)]
pub struct Peers {
    tls: Option<ClusterTls>,
    clock: Clock,
    most: MostWaiting,
    by_address: Mutex<HashMap<SocketAddr, Arc<Peer>>>,
}

impl Peers {
    pub(crate) fn new(tls: Option<ClusterTls>, most: MostWaiting, clock: Clock) -> Peers {
        Peers { tls, clock, most, by_address: Mutex::default() }
    }

    /// The peer at an address. `None` if this node may not talk to that address, because it has no
    /// TLS and the address is on another machine.
    pub(crate) fn peer(&self, address: SocketAddr) -> Option<Arc<Peer>> {
        if self.tls.is_none() && !address.ip().to_canonical().is_loopback() {
            return None;
        }
        let mut peers = self.by_address();
        let peer = peers.entry(address).or_insert_with(|| {
            let (tls, clock) = (self.tls.clone(), self.clock.clone());
            let limits = PeerLimits::new(self.most, &clock);
            Arc::new(Peer::new(address, tls, limits, clock))
        });
        Some(Arc::clone(peer))
    }

    /// Closes connections that have rested for too long, and forgets peers that nobody uses, until
    /// this future is dropped.
    pub async fn upkeep(&self) {
        loop {
            self.clock.sleep(UPKEEP_EVERY).await;
            let now = self.clock.now();
            self.by_address().retain(|_, peer| {
                let has_connections = peer.close_idle(now);
                has_connections || Arc::strong_count(peer) > 1
            });
        }
    }

    fn by_address(&self) -> MutexGuard<'_, HashMap<SocketAddr, Arc<Peer>>> {
        lock(&self.by_address)
    }
}
