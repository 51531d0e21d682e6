//! The settings of the API.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use http_server::{Authenticator, HttpLimits, READ_BYTES, ServerTls};

use crate::follow::TAIL_BYTES;

/// The memory for the large events of all followed logs.
pub(crate) const LARGE_EVENTS_BYTES: usize = 64 << 20;

/// The memory for the reads of new events for followers: for eight logs at the same time.
pub(crate) const NEW_EVENTS_BYTES: usize = 8 * READ_BYTES;

/// The settings of the API.
#[derive(Clone, Debug)]
pub struct HttpApiSettings {
    /// The address on which the API listens.
    pub listen: SocketAddr,
    /// TLS of the port. Without it the API speaks plain HTTP.
    pub tls: Option<ServerTls>,
    /// The limits of connections.
    pub limits: HttpLimits,
    /// How long a command, or the read of a document or a list, may take, waiting included.
    pub command_time: Duration,
    /// The number of bytes of all bodies together that are being received, or that belong to
    /// running commands. No single body may have more.
    pub bodies_bytes: usize,
    /// The number of bytes of all answers together that are being read, or that their clients have
    /// not received. Each answer takes [`READ_BYTES`] while it is read. A
    /// quarter is reserved for answers that need more. Numbers that are drawn count, too.
    pub answers_bytes: usize,
    /// The number of logs that may be sent at the same time. Each log takes
    /// [`READ_BYTES`] of `answers_bytes` until its end. At least half of
    /// `answers_bytes` should be left for documents and lists.
    pub logs: usize,
    /// The number of clients that may follow logs at the same time, including logs that other nodes
    /// send; at most half of the connections. Each takes some kilobytes.
    pub followers: usize,
    /// Whether the API serves only this machine. It then refuses requests from pages of other
    /// sites, and requests to other host names.
    pub only_local: bool,
    /// Authenticates the sender of a request. Without it, every client may do everything.
    pub authenticator: Option<Arc<dyn Authenticator>>,
    /// The most commands, changes and draws that a principal may send to this node in a second. 0
    /// is no limit.
    pub commands_per_second: u32,
    /// The origins of web pages that may use the API, such as `https://app.example`. Without an
    /// authenticator, each page that a user of this machine opens could do everything.
    pub page_origins: Vec<String>,
    /// Whether requests have spans. The OpenTelemetry tracer provider of the process makes them.
    /// The host must install it before it creates the API.
    pub traced: bool,
}

impl HttpApiSettings {
    /// The default settings: 10 s for a command, 256 MiB for bodies, 128 MiB for answers, 32
    /// logs and 2,000 followers.
    pub fn new(listen: SocketAddr) -> HttpApiSettings {
        HttpApiSettings {
            listen,
            tls: None,
            limits: HttpLimits::default(),
            command_time: Duration::from_secs(10),
            bodies_bytes: 256 << 20,
            answers_bytes: 128 << 20,
            logs: 32,
            followers: 2_000,
            only_local: true,
            authenticator: None,
            commands_per_second: 0,
            page_origins: Vec::new(),
            traced: false,
        }
    }

    /// The number of clients that can follow logs at the same time, with these settings. A follower
    /// is never idle, and other clients need connections too.
    pub fn most_followers(followers: usize, connections: usize) -> usize {
        followers.min(connections.div_ceil(2))
    }

    /// The most memory of the events that a node reads and keeps for followers, in bytes, with
    /// these settings.
    pub fn most_followed_bytes(followers: usize, connections: usize) -> usize {
        // Each log has a follower.
        let logs = HttpApiSettings::most_followers(followers, connections);
        logs.saturating_mul(TAIL_BYTES).saturating_add(LARGE_EVENTS_BYTES + NEW_EVENTS_BYTES)
    }
}
