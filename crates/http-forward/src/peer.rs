//! A peer: another node, as this node talks to it.
//!
//! Invariant: a request holds a permit of the [limits](PeerLimits) of the peer while it uses a
//! connection.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::AtomicBool},
};

use bytes::Bytes;
use clock::{Clock, Instant};
use http_body_util::Full;
use http_server::{
    ClusterTls,
    limits::{Asker, Permit},
    server::ONCE_WITHIN,
};
use hyper::{Request, Response, header::HeaderValue};

use crate::{
    connection::PeerFailure,
    connections::{Connections, IDLE},
    limits::PeerLimits,
    peer_body::PeerBody,
};

/// Another node, as this node talks to it.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// The value of `Host` in requests to the peer.
    pub(crate) host: HeaderValue,
    connections: Arc<Connections>,
    pub(crate) limits: PeerLimits,
}

impl Peer {
    pub(crate) fn new(
        address: SocketAddr,
        tls: Option<ClusterTls>,
        limits: PeerLimits,
        clock: Clock,
    ) -> Peer {
        let host = HeaderValue::from_str(&address.to_string());
        Peer {
            address,
            host: host.unwrap_or(HeaderValue::from_static("localhost")),
            connections: Arc::new(Connections::new(address, tls, clock)),
            limits,
        }
    }

    /// Sends a question of this node itself, which changes nothing. The question waits only for
    /// other questions.
    pub(crate) async fn question(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<PeerBody>, PeerFailure> {
        let nobody = Asker::nobody(Instant::FAR_FUTURE);
        let question = self.limits.questions.take(nobody, 1).await;
        self.ask(question.ok(), request, true, &AtomicBool::new(false)).await
    }

    /// Sends a request, and waits for the head of its answer. The body of the answer keeps the
    /// right to the connection. `is_sent` tells a caller that drops this future whether the peer
    /// may have got the request.
    pub(crate) async fn ask(
        &self,
        connection: Option<Permit>,
        mut request: Request<Full<Bytes>>,
        can_be_sent_twice: bool,
        is_sent: &AtomicBool,
    ) -> Result<Response<PeerBody>, PeerFailure> {
        let rest = if can_be_sent_twice { IDLE } else { ONCE_WITHIN };
        loop {
            let (mut open, is_new) = match self.connections.take_idle(rest) {
                Some(open) => (open, false),
                None => (self.connections.connect().await?, true),
            };
            match open.connection.send(request, is_sent).await {
                Ok(answer) => {
                    let of = Arc::clone(&self.connections);
                    return Ok(answer.map(|body| PeerBody::new(body, open, connection, of)));
                }
                // The peer ended a connection that rested, so the next one is tried. There are at
                // most as many of them as permits.
                Err((PeerFailure::NotSent(_), Some(unsent))) if !is_new => request = unsent,
                Err((failure, _)) => return Err(failure),
            }
        }
    }

    /// Closes connections that have rested for too long. Returns whether some are left.
    pub(crate) fn close_idle(&self, now: Instant) -> bool {
        self.connections.close_idle(now)
    }
}
