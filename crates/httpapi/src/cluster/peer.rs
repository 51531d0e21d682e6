//! A peer, and the connections to it.
//!
//! Invariant: a peer has at most [`CONNECTIONS_PER_PEER`] connections. A request holds a slot of
//! the peer while it uses a connection. Followers of logs stay long, and have slots of their own.
//! One slot is for [questions](Peer::question), so that they do not wait behind requests. Before a
//! new connection begins, connections without a request are closed if there are too many.
//!
//! A peer that stops ends its idle connections. A request that was sent at this moment may have
//! been handled or not, and only some requests can be sent twice. So a request that cannot be sent
//! twice uses only a connection that was used a moment ago.

use std::{
    fmt, io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use clock::{Clock, Instant};
use http_body_util::Full;
use hyper::{Request, Response, header::HeaderValue};
use metrics::Gauge;
use tokio::{
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tracing::warn;

use super::{
    body::PeerBody,
    connection::{PeerConnection, PeerFailure},
    quota::{Quota, QuotaLimits},
    read_places::ReadPlaces,
    settings::ClusterSettings,
    tls::ClusterTls,
};
use crate::{
    places::{Place, Places},
    problem::{ProblemDetails, TOO_MANY_FOLLOWERS},
    read::SendPlaces,
    stream::NodeStream,
};

const REQUESTS_PER_PEER: usize = ClusterSettings::REQUESTS_PER_PEER;
const FOLLOWERS_PER_PEER: usize = ClusterSettings::FOLLOWERS_PER_PEER;

/// The slots for requests. One more is for questions.
const REQUEST_SLOTS: usize = REQUESTS_PER_PEER - 1;

/// The most connections to one peer.
const CONNECTIONS_PER_PEER: usize = REQUESTS_PER_PEER + FOLLOWERS_PER_PEER;

/// The most logs that one peer sends to this node at the same time. Each needs a connection.
const LOGS_PER_PEER: usize = 8;

/// The time after which a connection without a request is closed.
const IDLE: Duration = Duration::from_secs(5);

/// The longest rest of a connection on which a request is sent that cannot be sent twice.
pub(crate) const ONCE_WITHIN: Duration = Duration::from_secs(1);

/// The time in which a peer must accept a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);

/// The time after a failed connection during which no other connection to the peer is tried.
const DOWN: Duration = Duration::from_millis(50);

/// Another node, as this node talks to it.
pub(crate) struct Peer {
    address: SocketAddr,
    /// The value of `Host` in requests to the peer.
    pub(crate) host: HeaderValue,
    tls: Option<ClusterTls>,
    pub(super) clock: Clock,
    slots: Arc<Semaphore>,
    question_slot: Arc<Semaphore>,
    /// The requests that the peer answers, and the bytes of their bodies.
    pub(crate) quota: Arc<Quota>,
    /// The shares of principals in the slots for requests.
    pub(crate) reads: ReadPlaces,
    pub(crate) logs: SendPlaces,
    follower_slots: Places,
    state: Mutex<PeerState>,
    open: Arc<OpenConnections>,
}

struct PeerState {
    /// Connections without a request, and since when. The last one was used last.
    idle: Vec<(OpenConnection, Instant)>,
    /// The end of the time during which no connection is tried.
    down_until: Instant,
}

impl Peer {
    pub(super) fn new(
        address: SocketAddr,
        tls: Option<ClusterTls>,
        limits: QuotaLimits,
        clock: Clock,
    ) -> Peer {
        let text = address.to_string();
        let host = HeaderValue::from_str(&text);
        let shown = metrics::gauge!("httpapi_peer_connections", "peer" => text);
        Peer {
            address,
            host: host.unwrap_or(HeaderValue::from_static("localhost")),
            tls,
            slots: Arc::new(Semaphore::new(REQUEST_SLOTS)),
            question_slot: Arc::new(Semaphore::new(1)),
            quota: Quota::new(limits),
            reads: ReadPlaces::of_peer(REQUEST_SLOTS, limits, clock.clone()),
            logs: SendPlaces::new(
                "through this node, the owner sends",
                LOGS_PER_PEER,
                clock.clone(),
            ),
            follower_slots: Places::new(FOLLOWERS_PER_PEER, TOO_MANY_FOLLOWERS, clock.clone()),
            state: Mutex::new(PeerState { idle: Vec::new(), down_until: clock.now() }),
            open: Arc::new(OpenConnections { number: AtomicUsize::new(0), shown }),
            clock,
        }
    }

    /// Waits for a slot for a request.
    pub(crate) async fn slot(&self) -> Result<PeerSlot, PeerFailure> {
        PeerSlot::of(&self.slots).await
    }

    /// Takes the slot of a follower, if one is free. Followers may stay for days, so nobody waits.
    pub(crate) fn follower_slot(
        &self,
        principal: Option<&str>,
    ) -> Result<PeerSlot, ProblemDetails> {
        let slots = &self.follower_slots;
        let place = slots.try_take(principal, 1).map_err(|why| {
            slots.problem(why, |most, of| {
                format!(
                    "at most {most} clients{of} follow logs of the owner through this node: follow \
                     the log at the owner itself"
                )
            })
        })?;
        Ok(PeerSlot::Follower { _place: place })
    }

    /// Sends a question of this node itself, which changes nothing. The question waits only for
    /// other questions.
    pub(super) async fn question(
        self: &Arc<Peer>,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<PeerBody>, PeerFailure> {
        let slot = PeerSlot::of(&self.question_slot).await?;
        self.ask(slot, request, true, &AtomicBool::new(false)).await
    }

    /// Sends a request, and waits for the head of its answer. `is_sent` tells a caller that drops
    /// this future whether the peer may have got the request.
    pub(crate) async fn ask(
        self: &Arc<Peer>,
        slot: PeerSlot,
        mut request: Request<Full<Bytes>>,
        can_be_sent_twice: bool,
        is_sent: &AtomicBool,
    ) -> Result<Response<PeerBody>, PeerFailure> {
        let rest = if can_be_sent_twice { IDLE } else { ONCE_WITHIN };
        loop {
            let (mut open, is_new) = match self.take_idle(rest) {
                Some(open) => (open, false),
                None => (self.connect().await?, true),
            };
            match open.connection.send(request, is_sent).await {
                Ok(answer) => {
                    let peer = Arc::clone(self);
                    return Ok(answer.map(|body| PeerBody::new(body, open, slot, peer)));
                }
                // The peer ended a connection that rested, so the next one is tried. There are at
                // most as many of them as slots.
                Err((PeerFailure::NotSent(_), Some(unsent))) if !is_new => request = unsent,
                Err((failure, _)) => return Err(failure),
            }
        }
    }

    /// Takes a connection that rested for at most this time and that the peer did not end.
    fn take_idle(&self, rest: Duration) -> Option<OpenConnection> {
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

    async fn connect(&self) -> Result<OpenConnection, PeerFailure> {
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
    pub(super) fn give_back(&self, open: OpenConnection) {
        let now = self.clock.now();
        self.state().idle.push((open, now));
    }

    /// Closes connections that have rested for too long. Returns whether some are left.
    pub(super) fn close_idle(&self, now: Instant) -> bool {
        let mut state = self.state();
        state.idle.retain(|(_, since)| now < *since + IDLE);
        !state.idle.is_empty()
    }

    fn state(&self) -> MutexGuard<'_, PeerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("address", &self.address).finish_non_exhaustive()
    }
}

/// The right to use a connection to a peer.
#[derive(Debug)]
pub(crate) enum PeerSlot {
    Request { _permit: OwnedSemaphorePermit },
    Follower { _place: Place },
}

impl PeerSlot {
    async fn of(slots: &Arc<Semaphore>) -> Result<PeerSlot, PeerFailure> {
        let permit = Arc::clone(slots).acquire_owned().await;
        let _permit = permit.map_err(|_| PeerFailure::NotSent("the node stops".to_owned()))?;
        Ok(PeerSlot::Request { _permit })
    }
}

/// A connection that is counted.
#[derive(Debug)]
pub(super) struct OpenConnection {
    pub(super) connection: Box<PeerConnection>,
    _count: OpenCount,
}

/// The number of connections to a peer, and the metric that shows it.
struct OpenConnections {
    number: AtomicUsize,
    shown: Gauge,
}

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

impl fmt::Debug for OpenCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpenCount")
    }
}
