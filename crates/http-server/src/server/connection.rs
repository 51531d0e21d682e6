//! One connection: serves its requests, and ends it.

use std::{
    convert::Infallible,
    future::{pending, poll_fn},
    io,
    net::SocketAddr,
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use hyper::{
    Request, Response,
    body::Incoming,
    header::{CONNECTION, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioTimer;
use tokio::{net::TcpStream, task::yield_now};
use tracing::{debug, info};

use super::{
    active_requests::WaitingPiece,
    closing::close,
    limits::ClientKind,
    plain_request::refusal,
    secured::secured,
    state::{RequestHandler, ServerState},
    tracked_body::TrackedBody,
    transport::{ClientWait, ConnectionState, Transport},
};
use crate::{
    client_lines::{ClientLine, ClientLines, beginning},
    request_body::RequestBody,
    response::{Body, Endless},
    stream::NodeStream,
};

/// The client of a request, and its connection.
#[derive(Clone, Debug)]
pub struct RequestClient(Arc<ClientFacts>);

#[derive(Debug)]
struct ClientFacts {
    /// The address of the client, or of a proxy in front of the node.
    peer: SocketAddr,
    /// The scheme of the URIs of the port: `http` or `https`.
    scheme: &'static str,
    lines: ClientLines,
    exchange: Arc<ConnectionState>,
}

impl RequestClient {
    fn new<A>(
        peer: SocketAddr,
        exchange: Arc<ConnectionState>,
        shared: &ServerState<A>,
    ) -> RequestClient {
        let scheme = if shared.is_secured() { "https" } else { "http" };
        RequestClient(Arc::new(ClientFacts { peer, scheme, lines: shared.lines.clone(), exchange }))
    }

    /// Notes that the port lets the client in.
    pub(crate) fn let_in(&self) {
        self.0.exchange.let_in();
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.0.peer
    }

    pub(crate) fn scheme(&self) -> &'static str {
        self.0.scheme
    }

    /// The lines that clients of the port can cause.
    pub fn lines(&self) -> &ClientLines {
        &self.0.lines
    }
}

/// How long a client that was not let in may take nothing of what the kernel still has at the end
/// of the connection. These bytes take memory and belong to no connection that is counted.
const REST_TIME: Duration = Duration::from_secs(5);

/// Serves the requests of a connection until its client or the node ends the connection.
pub(super) async fn run<A: RequestHandler>(
    stream: TcpStream,
    peer: SocketAddr,
    shared: &ServerState<A>,
) {
    let ServerState { limits, clock, stop, .. } = shared;
    send_at_once(&stream);
    bound_untaken(&stream, limits.answer_time);
    let Some(stream) = secured(stream, peer, shared).await else { return };
    let lacks_tls = stream.is_plain() && shared.is_secured();
    let is_peer = matches!(shared.clients, ClientKind::Peers(_));
    let exchange = Arc::new(ConnectionState::new(lacks_tls, is_peer && !lacks_tls));
    let client = RequestClient::new(peer, Arc::clone(&exchange), shared);
    let service = service_fn(|request| {
        let begun = exchange.begin();
        let client = &client;
        // The future of the answer is made in its box: it is large, and a move would copy it.
        Box::pin(async move {
            let answer = answered(request, client, shared).await;
            let is_endless = answer.extensions().get::<Endless>().is_some();
            let tracked = |body| TrackedBody::new(body, is_endless, begun, clock.clone());
            Ok::<_, Infallible>(answer.map(tracked))
        })
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_buf_size(limits.head_bytes.max(8_192))
        .serve_connection(Transport::new(stream, Arc::clone(&exchange), clock.clone()), service);
    let ends = poll_fn(|context| connection.poll_without_shutdown(context));
    let ended = tokio::select! {
        // A request that has arrived begins before the check whether the node stops.
        biased;
        ended = run_until_evicted(ends, &exchange, shared) => match ended {
            Some(ended) => Some(ended),
            None => {
                shared.gave_way.increment(1);
                let http1::Parts { mut io, .. } = connection.into_parts();
                return give_way(io.stream(), &exchange);
            }
        },
        () = exchange.under_way.overdue(limits.answer_time, clock) => {
            note_not_taken(peer, shared);
            let http1::Parts { mut io, .. } = connection.into_parts();
            return io.stream().reset();
        }
        () = stop.cancelled() => loop {
            // A graceful shutdown ends a connection at once if no request is under way. But the
            // first request may have arrived and not be read yet. So the connection gets this
            // signal only after its first request.
            if exchange.has_request() && matches!(shared.clients, ClientKind::Public(_)) {
                std::pin::Pin::new(&mut connection).graceful_shutdown();
            }
            let ends = poll_fn(|context| connection.poll_without_shutdown(context));
            match clock.timeout_at(clock.now() + shared.clients.quiet(), ends).await {
                Ok(ended) => break Some(ended),
                // An incomplete head is not a request yet, so the connection may end.
                Err(_) if exchange.under_way.is_idle() => break None,
                Err(_) => {}
            }
        },
    };
    let http1::Parts { mut io, .. } = connection.into_parts();
    if !exchange.is_let_in() {
        bound_untaken(io.stream().tcp(), REST_TIME.min(limits.answer_time));
    }
    match ended {
        Some(_) if exchange.is_not_taken() => note_not_taken(peer, shared),
        Some(Ok(())) => close(io, exchange.is_unread(), shared).await,
        // hyper has written a status without a body, as far as the kernel took it.
        Some(Err(error)) if error.is_parse() => {
            note_malformed(&error, peer, shared);
            close(io, true, shared).await;
        }
        Some(Err(error)) => {
            debug!(%error, "connection broke");
            io.stream().hang_up();
        }
        // The connection is idle, and ends at once.
        None => io.stream().hang_up(),
    }
}

fn note_malformed<A>(error: &hyper::Error, peer: SocketAddr, shared: &ServerState<A>) {
    if let Some(left_out) = shared.lines.next(ClientLine::Malformed, None) {
        let (service, error) = (shared.service, error.to_string());
        let error = beginning(&error);
        info!(service, %peer, error, left_out, "malformed request refused");
    }
}

fn note_not_taken<A>(peer: SocketAddr, shared: &ServerState<A>) {
    if let Some(left_out) = shared.lines.next(ClientLine::NotTaken, None) {
        let service = shared.service;
        info!(service, %peer, left_out, "answer not received in time, connection cut");
    }
    shared.not_taken.increment(1);
}

/// Returns how a connection ended, or `None` if it must give way to a new connection.
///
/// Invariant: only connections that wait for their clients wait to be asked, each from the end of
/// its patience. The first to wait is asked first, so the connection that has waited longest gives
/// way.
async fn run_until_evicted<T, A>(
    connection: impl Future<Output = T>,
    exchange: &ConnectionState,
    shared: &ServerState<A>,
) -> Option<T> {
    let (mut connection, mut asked, mut wait) = (pin!(connection), pin!(None), None);
    let is_asked = |ClientWait { patience, .. }: ClientWait| async move {
        if !patience.is_zero() {
            shared.clock.sleep(patience).await;
        }
        shared.asked_to_give_way().await;
    };
    poll_fn(|context| {
        if let Poll::Ready(ended) = connection.as_mut().poll(context) {
            return Poll::Ready(Some(ended));
        }
        if exchange.ends_here() {
            return Poll::Ready(None);
        }
        let now = exchange.client_wait();
        if wait != now {
            wait = now;
            asked.set(now.map(is_asked));
        }
        match asked.as_mut().as_pin_mut() {
            Some(asked) => asked.poll(context).map(|()| None),
            None => Poll::Pending,
        }
    })
    .await
}

/// Ends a connection in favour of a new one. A client that was not let in, or has not taken its
/// answer, loses what the kernel still has for it: under attack these would be the bytes of many
/// connections.
fn give_way(stream: &mut NodeStream, exchange: &ConnectionState) {
    if exchange.is_let_in() && exchange.under_way.is_idle() {
        stream.hang_up();
    } else {
        stream.reset();
    }
}

/// The answer to a request. If the connection ends with the answer, the answer says so.
async fn answered<A: RequestHandler>(
    request: Request<Incoming>,
    client: &RequestClient,
    shared: &ServerState<A>,
) -> Response<Body> {
    let ClientFacts { peer, exchange, .. } = &*client.0;
    let (mut head, body) = request.into_parts();
    // One value, because each one costs some allocations.
    head.extensions.insert(client.clone());
    let mut body = RequestBody::new(body, &head.headers);
    if !exchange.is_let_in() {
        yield_now().await;
        // The client may take all its answers, and send its next request before each. Then the node
        // never waits for this client. The first request is answered: probes that come together
        // would give way to each other.
        if exchange.has_next_request() && shared.is_asked_to_give_way() {
            exchange.end_here();
            return pending().await;
        }
    }
    let mut answer = if exchange.lacks_tls() {
        refusal(&head.headers, *peer, shared)
    } else {
        shared.answers.answer(Request::from_parts(head, &mut body)).await
    };
    // hyper ends a connection on which a body is left unread. Without this header the client would
    // send its next request on a closed connection. Meanwhile the connection can give way.
    let rest = (!body.is_ended())
        .then(|| WaitingPiece::new(Arc::new(exchange.under_way.begin()), shared.clock.clone()));
    let is_drained = body.drain(&shared.clock).await;
    drop(rest);
    if !is_drained {
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        exchange.leave_unread();
    }
    // A peer learns from the answer that the node stops, and sends no other request.
    if matches!(shared.clients, ClientKind::Peers(_)) && shared.stop.is_cancelled() {
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

fn send_at_once(stream: &TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "TCP_NODELAY could not be set");
    }
}

/// Lets the kernel end the connection of a client that takes nothing of its answer for a time. Only
/// the kernel knows which part of the answer is still on its way.
fn bound_untaken(stream: &TcpStream, time: Duration) {
    if let Err(error) = set_user_timeout(stream, time) {
        debug!(%error, "TCP_USER_TIMEOUT could not be set");
    }
}

#[cfg(target_os = "linux")]
fn set_user_timeout(stream: &TcpStream, time: Duration) -> io::Result<()> {
    let millis = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    Ok(rustix::net::sockopt::set_tcp_user_timeout(stream, millis)?)
}

#[cfg(not(target_os = "linux"))]
fn set_user_timeout(_: &TcpStream, _: Duration) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
