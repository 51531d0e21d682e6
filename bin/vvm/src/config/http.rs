//! The sections `http` and `admin` of the configuration.

use std::{
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    path::PathBuf,
};

use http_api::HttpApiSettings;
use processor::PartitionSettings;
use serde::{Deserialize, Serialize};

use super::{
    address::address,
    seconds::{Seconds, none_as_zero, zero_as_none},
};

/// The section `http`: the API.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HttpConfig {
    /// The address of the API.
    #[serde(deserialize_with = "address")]
    pub(crate) listen: SocketAddr,
    /// Whether other machines may reach the API without tokens. Every client can do everything.
    pub(crate) allow_unauthenticated: bool,
    /// The origins of web pages that may use the API, such as `https://app.example`.
    pub(crate) page_origins: Vec<String>,
    /// TLS of the API.
    pub(crate) tls: Option<HttpTlsConfig>,
    /// The maximum number of connections.
    pub(crate) connections: NonZeroUsize,
    /// How long the head of a request may take. Also how long a connection may be idle.
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
    /// The maximum number of clients that follow logs at the same time.
    pub(crate) followers: NonZeroUsize,
    /// The maximum number of commands that wait in a partition.
    pub(crate) queue: NonZeroUsize,
    /// How long a command waits while its partition is full. 0 refuses it at once.
    #[serde(deserialize_with = "zero_as_none", serialize_with = "none_as_zero")]
    pub(crate) queue_wait_seconds: Option<Seconds>,
}

impl Default for HttpConfig {
    fn default() -> HttpConfig {
        let api = HttpApiSettings::new((Ipv4Addr::LOCALHOST, 8822).into());
        let partition = PartitionSettings::new("");
        HttpConfig {
            listen: api.listen,
            allow_unauthenticated: !api.only_local,
            page_origins: api.page_origins,
            tls: None,
            connections: at_least_one(api.limits.connections),
            head_seconds: Seconds::of(api.limits.head_time),
            body_bytes: at_least_one(api.limits.body_bytes),
            body_seconds: Seconds::of(api.limits.body_time),
            command_seconds: Seconds::of(api.command_time),
            answer_seconds: Seconds::of(api.limits.answer_time),
            bodies_bytes: at_least_one(api.bodies_bytes),
            answers_bytes: at_least_one(api.answers_bytes),
            logs: at_least_one(api.logs),
            followers: at_least_one(api.followers),
            queue: at_least_one(partition.queue),
            queue_wait_seconds: Some(Seconds::of(partition.queue_wait)),
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
    /// Whether other machines may reach the admin endpoint without tokens and certificates: every
    /// client can make the node step down, and can repair rows: mark an event, which loses its
    /// content, or remove a row.
    pub(crate) allow_unauthenticated: bool,
    /// TLS of the admin endpoint.
    pub(crate) tls: Option<AdminTlsConfig>,
}

/// The section `http.tls`: the files of TLS of the API.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HttpTlsConfig {
    /// The certificate of this node, in PEM.
    pub(crate) cert_file: PathBuf,
    /// The key of the certificate, in PEM.
    pub(crate) key_file: PathBuf,
}

/// The section `admin.tls`: the files of TLS of the admin endpoint.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AdminTlsConfig {
    /// The certificate of this node, in PEM.
    pub(crate) cert_file: PathBuf,
    /// The key of the certificate, in PEM.
    pub(crate) key_file: PathBuf,
    /// The certificates of the authorities of clients, in PEM. With this file, each client needs a
    /// certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client_ca_file: Option<PathBuf>,
}

impl AdminConfig {
    /// Whether each client needs a certificate.
    pub(crate) fn asks_for_certificates(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.client_ca_file.is_some())
    }
}

impl Default for AdminConfig {
    fn default() -> AdminConfig {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 55_555));
        AdminConfig { listen, allow_unauthenticated: false, tls: None }
    }
}
