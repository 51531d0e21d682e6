//! Listening: accepts connections, and limits their number and cost.
//!
//! The rules about connections:
//!
//! - **Places.** A port has a number of places. A new connection beyond them takes the place of the
//!   connection that has waited longest for its client.
//! - **Waiting.** A connection waits for its client while it is idle, while the kernel takes no
//!   more of its answer, and while the node reads a body that the answer does not need. Otherwise
//!   the node is at work for it, and it keeps its place.
//! - **Patience.** A client is *let in* by its first request that the port would refuse without a
//!   token: it has a valid one, or the port asks for none. A connection with an answer to such a
//!   client may give way only after ten seconds without a byte taken: the client may pause. With an
//!   answer to another client it may give way at once. So clients without a token cannot keep
//!   others out.
//! - **Turns.** Before each request of a client that was not let in, other connections have their
//!   turns. So a probe waits for one request of each such client, and not for all that it sent.
//!   From its second request on, such a connection may give way there, too: otherwise a client that
//!   takes all answers, and has always sent its next request, would keep its place.
//! - **Order.** The answer to a request is taken by the kernel before the node answers the next
//!   request of the connection. hyper reads at most one request ahead.
//! - **Memory.** The kernel has little room for a connection ([`most_socket_bytes`]), so the node
//!   soon sees that nobody takes an answer.
//! - **Times.** A client has a limited time for a head, for a body and to take an answer
//!   ([`HttpLimits`]), whether places are short or not.

mod active_requests;
mod closing;
mod connection;
mod limits;
mod listener;
mod plain_request;
mod secured;
mod state;
mod tracked_body;
mod transport;

use std::{collections::VecDeque, future::pending, io, net::SocketAddr, sync::Arc, time::Duration};

use clock::Clock;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use self::connection::RequestClient;
pub use self::{limits::HttpLimits, listener::most_socket_bytes};
pub use self::{
    limits::{ClientKind, ONCE_WITHIN},
    listener::bind,
    state::RequestHandler,
};
use self::{
    listener::{WAITING, pending_connections},
    state::ServerState,
};
use crate::client_lines::ClientLine;

/// A service on a port.
#[derive(Debug)]
pub struct Server {
    /// The name of the service in log lines and metrics.
    pub name: &'static str,
    /// The limits of its connections.
    pub limits: HttpLimits,
    /// Who its clients are.
    pub clients: ClientKind,
    /// The clock of all its times.
    pub clock: Clock,
    /// Cancelled when the service must stop.
    pub stop: CancellationToken,
}

impl Server {
    /// Serves connections until the service must stop, and then finishes the current requests.
    /// Follows the files of TLS all the time.
    ///
    /// # Errors
    /// If the listener cannot be used.
    pub async fn serve(
        self,
        listener: std::net::TcpListener,
        answers: impl RequestHandler,
    ) -> io::Result<()> {
        let Server { name, limits, clients, clock, stop } = self;
        let shared = Arc::new(ServerState::new(name, answers, limits, clients, clock, stop));
        let follow = async {
            match shared.clients.tls() {
                Some(tls) => tls.follow(name, &shared.clock).await,
                None => pending().await,
            }
        };
        tokio::select! {
            served = accept(listener, &shared) => served,
            () = follow => Ok(()),
        }
    }
}

async fn accept<A: RequestHandler>(
    listener: std::net::TcpListener,
    shared: &Arc<ServerState<A>>,
) -> io::Result<()> {
    const PAUSE: Duration = Duration::from_millis(50);
    let (name, limits) = (shared.service, &shared.limits);
    let listener = TcpListener::from_std(listener)?;
    let free_places = Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS)));
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
        let shared = Arc::clone(shared);
        connections.spawn(async move {
            connection::run(stream, peer, &shared).await;
            drop(permit);
        });
    };
    // The accepted connections that wait for a free place. One connection is asked to give way for
    // each. If only one waited at a time, connections that come together would wait for each other.
    let mut next = VecDeque::new();
    loop {
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => break,
            Some(_) = connections.join_next() => open.decrement(1),
            permit = Arc::clone(&free_places).acquire_owned(), if !next.is_empty() => {
                if let Some(accepted) = next.pop_front() {
                    // If a connection ended by itself, no other connection has to give way any
                    // more, least of all the new one, which is idle at first.
                    shared.ask_at_most(next.len());
                    begin(&mut connections, accepted, permit.ok());
                }
            }
            accepted = listener.accept(), if next.len() < WAITING => match accepted {
                Ok(accepted) => {
                    if free_places.available_permits() <= next.len() {
                        shared.ask_to_give_way();
                    }
                    next.push_back(accepted);
                }
                // The connection is gone already, or the process has no free file handles, which is
                // temporary.
                Err(error) => {
                    if let Some(left_out) = shared.lines.next(ClientLine::NotAccepted, None) {
                        warn!(service = name, %error, left_out, "accepting a connection failed");
                    }
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
