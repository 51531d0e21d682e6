//! Listening: connections, and what each of them may cost.

mod connection;
mod transport;
mod under_way;

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
use vvm::Failure;

pub(crate) use self::connection::Peer;
use crate::{incoming::RequestBody, reply::Body};

/// What connections may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many there may be. A new connection above the limit takes the place of the connection
    /// that has been idle longest; if none is idle, it waits until one is or ends.
    pub connections: usize,
    /// How long a head of a request may take to come, and how long a connection may be idle, or not take what it is sent.
    pub head_time: Duration,
    /// How many bytes a head may have.
    pub head_bytes: usize,
    /// How long a body may take to come.
    pub body_time: Duration,
    /// How many bytes a body may have.
    pub body_bytes: usize,
    /// How long a client may take to receive an answer. An answer that takes longer is cut.
    pub answer_time: Duration,
    /// How long what is under way may take to end when the node stops.
    pub drain_time: Duration,
}

impl Default for Limits {
    /// 15,000 connections, 30 s and 16 KiB for a head, 10 s and 1 MiB for a body, 60 s to receive
    /// an answer, 2 s to end.
    fn default() -> Limits {
        Limits {
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

/// Answers requests.
pub(crate) trait Answers: Send + Sync + 'static {
    fn answer(
        &self,
        request: Request<&mut RequestBody>,
    ) -> impl Future<Output = Response<Body>> + Send;
}

/// How many connections may wait to be accepted. One that finds no room is tried again by its client after a second.
const BACKLOG: u32 = 4_096;

/// A port that is taken. It belongs to no runtime until [`serve`] is called on one.
pub(crate) fn bind(address: SocketAddr) -> Result<std::net::TcpListener, Failure> {
    let listen = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // Connections of a former process may not be over.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)?.into_std()
    };
    listen().map_err(|error: io::Error| format!("{address}: {error}").into())
}

/// What all connections of a service share.
struct Shared<A> {
    service: &'static str,
    answers: A,
    limits: Limits,
    clock: Clock,
    stop: CancellationToken,
    /// Asks the connection that has been idle longest to end.
    give_way: Notify,
    gave_way: Counter,
    not_taken: Counter,
}

/// Serves connections until `stop`, and then those requests that are under way.
pub(crate) async fn serve<A: Answers>(
    name: &'static str,
    listener: std::net::TcpListener,
    answers: A,
    limits: Limits,
    clock: &Clock,
    stop: &CancellationToken,
) -> Result<(), Failure> {
    const PAUSE: Duration = Duration::from_millis(50);
    let listener = TcpListener::from_std(listener)?;
    let room = Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS)));
    let (clock, stop) = (clock.clone(), stop.clone());
    let closed = |reason| {
        let of = "httpapi_connections_closed_total";
        metrics::counter!(of, "service" => name, "reason" => reason)
    };
    let (give_way, gave_way, not_taken) =
        (Notify::new(), closed("gave_way"), closed("answer_not_taken"));
    let service = name;
    let shared = Shared { service, answers, limits, clock, stop, give_way, gave_way, not_taken };
    let shared = Arc::new(shared);
    // Port 0 is any, and whoever asked for it wants to know which.
    if let Ok(address) = listener.local_addr() {
        info!(service = name, %address, "listens");
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
    // The connection that was accepted, and for which there is no room yet.
    let mut next = None;
    loop {
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => break,
            Some(_) = connections.join_next() => open.decrement(1),
            permit = Arc::clone(&room).acquire_owned(), if next.is_some() => {
                if let Some(accepted) = next.take() {
                    begin(&mut connections, accepted, permit.ok());
                    // If a connection ended by itself, no other one has to give way any more.
                    let _ = shared.give_way.notified().now_or_never();
                }
            }
            accepted = listener.accept(), if next.is_none() => match accepted {
                Ok(accepted) => {
                    if room.available_permits() == 0 {
                        shared.give_way.notify_one();
                    }
                    next = Some(accepted);
                }
                // A connection that is gone already; or there are no more file handles, which passes.
                Err(error) => {
                    warn!(service = name, %error, "a connection was not accepted");
                    shared.clock.sleep(PAUSE).await;
                }
            },
        }
    }
    // Those that came before the end are answered too.
    next.into_iter()
        .chain(waiting(listener))
        .for_each(|accepted| begin(&mut connections, accepted, None));
    let all = async { while connections.join_next().await.is_some() {} };
    if shared.clock.timeout_at(shared.clock.now() + limits.drain_time, all).await.is_err() {
        warn!(
            service = name,
            left = connections.len(),
            "connections did not end in time, and are cut"
        );
    }
    open.set(0);
    Ok(())
}

/// The connections that nobody has accepted yet. The kernel is asked: the runtime learns of them a moment later, and tells of some at a time.
fn waiting(listener: TcpListener) -> impl Iterator<Item = (TcpStream, SocketAddr)> {
    let accept = |listener: &std::net::TcpListener| {
        let (stream, peer) = listener.accept()?;
        stream.set_nonblocking(true)?;
        Ok::<_, io::Error>((TcpStream::from_std(stream)?, peer))
    };
    let listener = listener.into_std().ok();
    let all = std::iter::from_fn(move || listener.as_ref().map(accept));
    all.take(BACKLOG as usize)
        .filter(|next| {
            // It is gone already.
            !matches!(next, Err(error) if error.kind() == io::ErrorKind::ConnectionAborted)
        })
        .map_while(Result::ok)
}
