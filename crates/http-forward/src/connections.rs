//! The connections to one peer.
//!
//! Invariant: there are at most [`CONNECTIONS_PER_PEER`] of them, because each request holds a
//! permit of the [limits](crate::limits::PeerLimits) of the peer. Before a new connection begins,
//! one without a request is closed if there are too many.
//!
//! A peer that stops ends its idle connections. A request that was sent at this moment may have
//! been handled or not, and only some requests can be sent twice. So a request that cannot be sent
//! twice uses only a connection that was used a moment ago.

use std::{
    fmt, io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use base::locks::lock;
use clock::{Clock, Instant};
use http_server::{ClusterTls, stream::NodeStream};
use metrics::Gauge;
use tokio::net::TcpStream;
use tracing::warn;

use crate::{
    connection::{PeerConnection, PeerFailure},
    settings::ClusterSettings,
};

/// The most connections to one peer.
const CONNECTIONS_PER_PEER: usize =
    ClusterSettings::REQUESTS_PER_PEER + ClusterSettings::FOLLOWERS_PER_PEER;

/// The time after which a connection without a request is closed.
pub(crate) const IDLE: Duration = Duration::from_secs(5);

/// How long a peer may take to accept a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);

/// After a connection to a peer has failed, no other one is tried for this time.
const DOWN: Duration = Duration::from_millis(50);

/// The connections to one peer.
#[derive(Debug)]
pub(crate) struct Connections {
    address: SocketAddr,
    tls: Option<ClusterTls>,
    pub(crate) clock: Clock,
    state: Mutex<ConnectionsState>,
    open: Arc<OpenConnections>,
}

#[derive(Debug)]
struct ConnectionsState {
    /// Connections without a request, and since when. The last one was used last.
    idle: Vec<(OpenConnection, Instant)>,
    /// No connection is tried before this time.
    down_until: Instant,
}

impl Connections {
    pub(crate) fn new(address: SocketAddr, tls: Option<ClusterTls>, clock: Clock) -> Connections {
        let shown = metrics::gauge!("httpapi_peer_connections", "peer" => address.to_string());
        Connections {
            address,
            tls,
            state: Mutex::new(ConnectionsState { idle: Vec::new(), down_until: clock.now() }),
            open: Arc::new(OpenConnections { number: AtomicUsize::new(0), shown }),
            clock,
        }
    }

    /// Takes a connection that rested for at most this time and that the peer did not end.
    pub(crate) fn take_idle(&self, rest: Duration) -> Option<OpenConnection> {
        loop {
            let now = self.clock.now();
            let mut open = {
                let mut state = self.state();
                // All others rested longer than the last one.
                state.idle.last().filter(|(_, since)| now < *since + rest)?;
                state.idle.pop()?.0
            };
            if open.connection.is_alive() {
                return Some(open);
            }
        }
    }

    /// Begins a new connection.
    pub(crate) async fn connect(&self) -> Result<OpenConnection, PeerFailure> {
        let address = self.address;
        let failed = |why: &dyn fmt::Display| {
            PeerFailure::NotSent(format!("no connection to the node at {address}: {why}"))
        };
        let now = self.clock.now();
        let count = {
            let mut state = self.state();
            if now < state.down_until {
                return Err(failed(&"the last attempt failed a moment ago"));
            }
            if self.open.number.load(Ordering::Relaxed) >= CONNECTIONS_PER_PEER
                && !state.idle.is_empty()
            {
                state.idle.remove(0);
            }
            OpenCount::new(&self.open)
        };
        let connected = async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let stream = match &self.tls {
                Some(tls) => tls.connect(stream).await?,
                None => NodeStream::Plain(stream),
            };
            PeerConnection::begin(stream).await.map_err(io::Error::other)
        };
        let error = match self.clock.timeout_at(now + CONNECT_WITHIN, connected).await {
            Ok(Ok(connection)) => {
                return Ok(OpenConnection { connection: Box::new(connection), _count: count });
            }
            Ok(Err(error)) => error,
            Err(_) => io::ErrorKind::TimedOut.into(),
        };
        if error.kind() == io::ErrorKind::InvalidData {
            warn!(peer = %address, %error, "TLS with a peer failed");
        }
        self.state().down_until = self.clock.now() + DOWN;
        Err(failed(&error))
    }

    /// Keeps a connection for the next request.
    pub(crate) fn give_back(&self, open: OpenConnection) {
        let now = self.clock.now();
        self.state().idle.push((open, now));
    }

    /// Closes connections that have rested for too long. Returns whether any are left, including
    /// those in use.
    pub(crate) fn close_idle(&self, now: Instant) -> bool {
        self.state().idle.retain(|(_, since)| now < *since + IDLE);
        self.open.number.load(Ordering::Relaxed) > 0
    }

    fn state(&self) -> MutexGuard<'_, ConnectionsState> {
        lock(&self.state)
    }
}

/// A connection that is counted.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    pub(crate) connection: Box<PeerConnection>,
    _count: OpenCount,
}

/// The number of connections to a peer, and the metric that shows it.
#[derive(Debug)]
struct OpenConnections {
    number: AtomicUsize,
    shown: Gauge,
}

#[derive(Debug)]
struct OpenCount(Arc<OpenConnections>);

impl OpenCount {
    fn new(of: &Arc<OpenConnections>) -> OpenCount {
        of.number.fetch_add(1, Ordering::Relaxed);
        of.shown.increment(1);
        OpenCount(Arc::clone(of))
    }
}

impl Drop for OpenCount {
    fn drop(&mut self) {
        self.0.number.fetch_sub(1, Ordering::Relaxed);
        self.0.shown.decrement(1);
    }
}
