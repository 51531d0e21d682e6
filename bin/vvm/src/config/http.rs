//! The sections `http` and `admin` of the configuration.

use std::{
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
};

use serde::{Deserialize, Serialize};

use super::{address::address, seconds::Seconds};

/// The section `http`: the API.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HttpConfig {
    /// The address of the API.
    #[serde(deserialize_with = "address")]
    pub(crate) listen: SocketAddr,
    /// Whether other machines may reach the API. The API has no authentication: every client can do
    /// everything.
    pub(crate) allow_unauthenticated: bool,
    /// The maximum number of connections.
    pub(crate) connections: NonZeroUsize,
    /// How long the head of a request may take. Also how long a connection may be idle, or take
    /// nothing of its answer.
    pub(crate) head_seconds: Seconds,
    /// The maximum size of a body, in bytes.
    pub(crate) body_bytes: NonZeroUsize,
    /// How long a body may take to arrive.
    pub(crate) body_seconds: Seconds,
    /// How long a command may take, including the time that it waits.
    pub(crate) command_seconds: Seconds,
    /// How long a client may take to receive an answer.
    pub(crate) answer_seconds: Seconds,
    /// The maximum size of all bodies together, in bytes.
    pub(crate) bodies_bytes: NonZeroUsize,
    /// The maximum size of all answers together, in bytes.
    pub(crate) answers_bytes: NonZeroUsize,
    /// The maximum number of logs that are read at the same time.
    pub(crate) logs: NonZeroUsize,
    /// The maximum number of commands that wait in a partition.
    pub(crate) queue: NonZeroUsize,
}

impl Default for HttpConfig {
    fn default() -> HttpConfig {
        HttpConfig {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8822)),
            allow_unauthenticated: false,
            connections: at_least_one(15_000),
            head_seconds: Seconds(30.0),
            body_bytes: at_least_one(1 << 20),
            body_seconds: Seconds(10.0),
            command_seconds: Seconds(10.0),
            answer_seconds: Seconds(60.0),
            bodies_bytes: at_least_one(256 << 20),
            answers_bytes: at_least_one(128 << 20),
            logs: at_least_one(32),
            queue: at_least_one(1_000),
        }
    }
}

fn at_least_one(limit: usize) -> NonZeroUsize {
    NonZeroUsize::new(limit).unwrap_or(NonZeroUsize::MIN)
}

/// The section `admin`: the admin endpoint.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AdminConfig {
    /// The address of the admin endpoint.
    #[serde(deserialize_with = "address")]
    pub(crate) listen: SocketAddr,
    /// Whether other machines may reach the admin endpoint. The endpoint has no authentication:
    /// every client can make the node step down.
    pub(crate) allow_unauthenticated: bool,
}

impl Default for AdminConfig {
    fn default() -> AdminConfig {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 55_555));
        AdminConfig { listen, allow_unauthenticated: false }
    }
}
