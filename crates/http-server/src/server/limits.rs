//! The limits of connections and their defaults.

use std::time::Duration;

use crate::tls::{ClusterTls, PortTls, ServerTls};

/// A node sends a request that cannot be sent twice only on a connection that was used within this
/// time.
pub const ONCE_WITHIN: Duration = Duration::from_secs(1);

/// The limits of connections.
#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    /// The number of connections. A new connection above the limit takes the place of the
    /// connection that has waited longest for its client: idle, or with an answer that the client
    /// does not take. An answer to a client that the port let in waits ten seconds before that. If
    /// no connection waits, the new one waits until a connection does, or ends.
    pub connections: usize,
    /// The time that the head of a request may take to arrive, and before it the handshake of TLS.
    /// A connection may be idle for the same time.
    pub head_time: Duration,
    /// The number of bytes of a head.
    pub head_bytes: usize,
    /// The time that a body may take to arrive.
    pub body_time: Duration,
    /// The number of bytes of a body.
    pub body_bytes: usize,
    /// How long a client may take to receive an answer, or may take nothing of it. An answer that
    /// takes longer is cut.
    pub answer_time: Duration,
    /// The time that current requests may take to end when the node stops. In a node, use
    /// `vvm::StopShare::Requests`.
    pub drain_time: Duration,
}

/// The clients of a service.
#[derive(Debug)]
pub enum ClientKind {
    /// Anybody who reaches the port.
    Public(Option<ServerTls>),
    /// The other nodes of the cluster.
    Peers(Option<ClusterTls>),
}

impl ClientKind {
    pub(super) fn tls(&self) -> Option<&PortTls> {
        match self {
            ClientKind::Public(tls) => tls.as_ref().map(ServerTls::port),
            ClientKind::Peers(tls) => tls.as_ref().map(ClusterTls::port),
        }
    }

    /// How long after the beginning of a stop a connection without a current request is closed.
    ///
    /// A connection of a peer stays open for longer than [`ONCE_WITHIN`], so a request that cannot
    /// be sent twice never meets a connection that is being closed.
    pub(super) fn quiet(&self) -> Duration {
        match self {
            ClientKind::Public(_) => Duration::from_millis(200),
            ClientKind::Peers(_) => ONCE_WITHIN + Duration::from_millis(100),
        }
    }
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
