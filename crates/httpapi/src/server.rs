//! Listening: accepts connections, and limits their number and cost.

mod active_requests;
mod connection;
mod transport;

use std::{future::Future, io, net::SocketAddr, sync::Arc, time::Duration};

use clock::Clock;
use futures::FutureExt;
use hyper::{Request, Response};
use metrics::Counter;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use vvm::ServiceError;

pub(crate) use self::connection::PeerAddress;
use crate::{request_body::RequestBody, response::Body};

/// The limits of connections.
#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    /// The number of connections. A new connection above the limit takes the place of the
    /// connection that has been idle longest. If no connection is idle, the new one waits until a
    /// connection becomes idle or ends.
    pub connections: usize,
    /// The time that the head of a request may take to arrive. A connection may be idle for the
    /// same time, and its client may leave sent bytes unreceived for the same time.
    pub head_time: Duration,
    /// The number of bytes of a head.
    pub head_bytes: usize,
    /// The time that a body may take to arrive.
    pub body_time: Duration,
    /// The number of bytes of a body.
    pub body_bytes: usize,
    /// The time that a client may take to receive an answer. An answer that takes longer is cut.
    pub answer_time: Duration,
    /// The time that current requests may take to end when the node stops.
    pub drain_time: Duration,
}

impl Default for HttpLimits {
    /// The default limits: 15,000 connections, 30 s and 16 KiB for a head, 10 s and 1 MiB for a
    /// body, 60 s to receive an answer, and 2 s to end.
    fn default() -> HttpLimits {
        HttpLimits {
            connections: 15_000,
            head_time: Duration::from_secs(30),
            head_bytes: 16 << 10,
            body_time: Duration::from_secs(10),
            body_bytes: 1 << 20,
            answer_time: Duration::from_secs(60),
            drain_time: Duration::from_secs(2),
        }
    }
}

/// Answers the requests of a service.
pub(crate) trait RequestHandler: Send + Sync + 'static {
    fn answer(
        &self,
        request: Request<&mut RequestBody>,
    ) -> impl Future<Output = Response<Body>> + Send;
}

/// The number of connections that may wait to be accepted. If the queue is full, the client tries
/// again after a second.
const BACKLOG: u32 = 4_096;

/// Takes a port. The listener belongs to no runtime until [`serve`] is called on a runtime.
pub(crate) fn bind(address: SocketAddr) -> Result<std::net::TcpListener, ServiceError> {
    let listen = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // Connections of a former process may still hold the port.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)?.into_std()
    };
    listen().map_err(|error: io::Error| format!("{address}: {error}").into())
}

/// The state that all connections of a service share.
struct ServerState<A> {
    service: &'static str,
    answers: A,
    limits: HttpLimits,
    clock: Clock,
    stop: CancellationToken,
    /// Asks the connection that has been idle longest to end.
    give_way: Notify,
    gave_way: Counter,
    not_taken: Counter,
}

/// Serves connections until `stop` is cancelled, and then finishes the current requests.
pub(crate) async fn serve<A: RequestHandler>(
    name: &'static str,
    listener: std::net::TcpListener,
    answers: A,
    limits: HttpLimits,
    clock: &Clock,
    stop: &CancellationToken,
) -> Result<(), ServiceError> {
    const PAUSE: Duration = Duration::from_millis(50);
    let listener = TcpListener::from_std(listener)?;
    let free_places = Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS)));
    let (clock, stop) = (clock.clone(), stop.clone());
    let closed = |reason| {
        let of = "httpapi_connections_closed_total";
        metrics::counter!(of, "service" => name, "reason" => reason)
    };
    let (give_way, gave_way, not_taken) =
        (Notify::new(), closed("gave_way"), closed("answer_not_taken"));
    let service = name;
    let shared =
        ServerState { service, answers, limits, clock, stop, give_way, gave_way, not_taken };
    let shared = Arc::new(shared);
    // With port 0 the system chooses the port, and the operator needs to know the number.
    if let Ok(address) = listener.local_addr() {
        info!(service = name, %address, "listening");
    }
    let open = metrics::gauge!("httpapi_connections", "service" => name);
    let mut connections = JoinSet::new();
    let begin = |connections: &mut JoinSet<()>,
                 (stream, peer): (TcpStream, SocketAddr),
                 permit: Option<OwnedSemaphorePermit>| {
        open.increment(1);
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            connection::run(stream, peer, &shared).await;
            drop(permit);
        });
    };
    // The accepted connection that waits for a free place.
    let mut next = None;
    loop {
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => break,
            Some(_) = connections.join_next() => open.decrement(1),
            permit = Arc::clone(&free_places).acquire_owned(), if next.is_some() => {
                if let Some(accepted) = next.take() {
                    begin(&mut connections, accepted, permit.ok());
                    // If a connection ended by itself, no other connection has to give way any
                    // more.
                    let _ = shared.give_way.notified().now_or_never();
                }
            }
            accepted = listener.accept(), if next.is_none() => match accepted {
                Ok(accepted) => {
                    if free_places.available_permits() == 0 {
                        shared.give_way.notify_one();
                    }
                    next = Some(accepted);
                }
                // The connection is gone already, or the process has no free file handles, which is
                // temporary.
                Err(error) => {
                    warn!(service = name, %error, "accepting a connection failed");
                    shared.clock.sleep(PAUSE).await;
                }
            },
        }
    }
    // Connections that arrived before the stop are answered, too.
    next.into_iter()
        .chain(pending_connections(listener))
        .for_each(|accepted| begin(&mut connections, accepted, None));
    let all = async { while connections.join_next().await.is_some() {} };
    if shared.clock.timeout_at(shared.clock.now() + limits.drain_time, all).await.is_err() {
        warn!(
            service = name,
            left = connections.len(),
            "connections did not end in time and were cut"
        );
    }
    open.set(0);
    Ok(())
}

/// The connections that wait to be accepted. This function asks the kernel, because the runtime
/// learns of connections a moment later, and only of some at a time.
fn pending_connections(listener: TcpListener) -> impl Iterator<Item = (TcpStream, SocketAddr)> {
    let accept = |listener: &std::net::TcpListener| {
        let (stream, peer) = listener.accept()?;
        stream.set_nonblocking(true)?;
        Ok::<_, io::Error>((TcpStream::from_std(stream)?, peer))
    };
    let listener = listener.into_std().ok();
    let all = std::iter::from_fn(move || listener.as_ref().map(accept));
    all.take(BACKLOG as usize)
        .filter(|next| {
            // The connection is gone already.
            !matches!(next, Err(error) if error.kind() == io::ErrorKind::ConnectionAborted)
        })
        .map_while(Result::ok)
}
