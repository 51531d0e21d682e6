//! The handshake of TLS at the beginning of a connection.

use std::{io, net::SocketAddr};

use tokio::net::TcpStream;
use tracing::{debug, info, warn};

use super::{
    limits::ClientKind,
    state::{RequestHandler, ServerState},
};
use crate::{
    client_lines::{ClientLine, beginning},
    stream::NodeStream,
    tls::PortTls,
};

/// Begins TLS if the port has it. Returns a plain stream if the client speaks plain HTTP to a port
/// with TLS, for an answer that says so.
///
/// Returns `None` if the handshake failed or took too long, or if the connection must end. A
/// connection that has not finished its handshake is idle: it gives way to a new one, and it has as
/// much time after the beginning of a stop as the request of a connection without TLS.
pub(super) async fn secured<A: RequestHandler>(
    stream: TcpStream,
    peer: SocketAddr,
    shared: &ServerState<A>,
) -> Option<NodeStream> {
    let ServerState { service, limits, clients, clock, stop, .. } = shared;
    let Some(tls) = clients.tls() else { return Some(NodeStream::Plain(stream)) };
    let deadline = clock.now() + limits.head_time;
    let stopped = async {
        stop.cancelled().await;
        clock.sleep(clients.quiet()).await;
    };
    // In a box, so that a connection without TLS does not take its memory.
    let handshake = Box::pin(handshake(stream, tls, clients));
    let secured = tokio::select! {
        biased;
        secured = clock.timeout_at(deadline, handshake) => secured,
        () = shared.asked_to_give_way() => {
            shared.gave_way.increment(1);
            return None;
        }
        () = stopped => return None,
    };
    match secured {
        Ok(Ok(stream)) => return Some(stream),
        // A load balancer that checks the port sends nothing.
        Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
            debug!(service, %peer, "the client hung up before TLS");
            return None;
        }
        Ok(Err(error)) => note_refused(Some(&error), peer, shared),
        Err(_) => note_refused(None, peer, shared),
    }
    shared.tls_refused.increment(1);
    None
}

/// Writes the line about a handshake that failed with an error, or was not finished in time.
fn note_refused<A>(error: Option<&io::Error>, peer: SocketAddr, shared: &ServerState<A>) {
    let Some(left_out) = shared.lines.next(ClientLine::TlsRefused, None) else { return };
    let service = shared.service;
    match error.map(io::Error::to_string) {
        Some(error) => {
            let error = beginning(&error);
            match shared.clients {
                ClientKind::Peers(_) => warn!(service, %peer, error, left_out, "TLS refused"),
                ClientKind::Public(_) => info!(service, %peer, error, left_out, "TLS refused"),
            }
        }
        None => info!(service, %peer, left_out, "TLS not finished in time"),
    }
}

async fn handshake(
    stream: TcpStream,
    tls: &PortTls,
    clients: &ClientKind,
) -> io::Result<NodeStream> {
    // A peer without TLS gets no answer. It would hand the answer on to its client.
    if matches!(clients, ClientKind::Public(_)) {
        let mut first = [0];
        stream.peek(&mut first).await?;
        // A method begins with a letter, and the handshake of TLS with the byte 22.
        if first[0].is_ascii_alphabetic() {
            return Ok(NodeStream::Plain(stream));
        }
    }
    tls.accept(stream).await
}
