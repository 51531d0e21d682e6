//! The sections of the configuration, except storage and applications.

use std::{
    io::IsTerminal,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    path::PathBuf,
    time::Duration,
};

use serde::{Deserialize, Deserializer, Serialize, de::Error};

use crate::cli;
use eventlog::TrustLevel;
use ielections::Slot;
use tracing_subscriber::EnvFilter;

/// The section `node`: the node as a part of its cluster.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NodeConfig {
    /// The address at which clients of other nodes find this node. The default is the address of
    /// the API.
    #[serde(deserialize_with = "address")]
    pub(crate) advertised: Option<SocketAddr>,
    /// The number of slots: so many nodes lead at the same time, and the others wait.
    #[serde(deserialize_with = "slots", serialize_with = "slots_as_number")]
    pub(crate) slots: Slot,
    /// The length of a lease.
    #[serde(deserialize_with = "lease")]
    pub(crate) lease_seconds: Seconds,
    /// How long the node waits for leadership. 0 is for ever.
    #[serde(deserialize_with = "zero_as_none", serialize_with = "none_as_zero")]
    pub(crate) acquire_seconds: Option<Seconds>,
    /// The most time that the whole node may take to stop.
    pub(crate) stop_seconds: Seconds,
    /// The most time for a call to the storage. The default is a tenth of the lease.
    pub(crate) call_seconds: Option<Seconds>,
    /// The folder in which the node remembers its lease, so that the node need not wait for the
    /// lease after a crash. Only one process may use a folder.
    pub(crate) folder: PathBuf,
}

impl Default for NodeConfig {
    fn default() -> NodeConfig {
        NodeConfig {
            advertised: None,
            slots: Slot::new(1).unwrap_or_else(|| unreachable!("one is a slot")),
            lease_seconds: Seconds(20.0),
            acquire_seconds: Some(Seconds(120.0)),
            stop_seconds: Seconds(10.0),
            call_seconds: None,
            folder: PathBuf::from("data"),
        }
    }
}

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
            connections: most(15_000),
            head_seconds: Seconds(30.0),
            body_bytes: most(1 << 20),
            body_seconds: Seconds(10.0),
            command_seconds: Seconds(10.0),
            answer_seconds: Seconds(60.0),
            bodies_bytes: most(256 << 20),
            answers_bytes: most(128 << 20),
            logs: most(32),
            queue: most(1_000),
        }
    }
}

fn most(limit: usize) -> NonZeroUsize {
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

/// The section `sequences`: the trust level, and the place of the numbers.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SequencesConfig {
    /// The trust level: 0, 1 or 2. It is fixed when an application is deployed for the first time.
    #[serde(deserialize_with = "level", serialize_with = "as_number")]
    pub(crate) trust_level: TrustLevel,
    /// The place of the numbers. If this place has no numbers yet, the node reads the logs from
    /// their beginning once.
    pub(crate) storage: SequencesIn,
    /// How many numbers each partition keeps in memory.
    pub(crate) cached_numbers: usize,
}

impl Default for SequencesConfig {
    fn default() -> SequencesConfig {
        let storage = SequencesIn::default();
        SequencesConfig { trust_level: TrustLevel::Zero, storage, cached_numbers: 10_000 }
    }
}

/// The places in which numbers can be stored.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SequencesIn {
    /// The system keyspace.
    #[default]
    System,
    /// The keyspace of the application, in rows of `sys.SequencesView`.
    View,
}

fn address<'de, D: Deserializer<'de>, A: From<SocketAddr>>(from: D) -> Result<A, D::Error> {
    let text = String::deserialize(from).map_err(|_| {
        let example = "an IP and a port in quotes are expected, such as \"127.0.0.1:8822\"";
        D::Error::custom(example)
    })?;
    cli::address(&text).map(A::from).map_err(D::Error::custom)
}

fn slots<'de, D: Deserializer<'de>>(from: D) -> Result<Slot, D::Error> {
    let slots = Slot::new(u32::deserialize(from)?);
    slots.ok_or_else(|| D::Error::custom("the number of slots must be 1 or more"))
}

fn slots_as_number<S: serde::Serializer>(slots: &Slot, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u32(slots.get())
}

fn lease<'de, D: Deserializer<'de>>(from: D) -> Result<Seconds, D::Error> {
    let lease = Seconds::deserialize(from)?;
    if lease.get() < SHORTEST_LEASE {
        return Err(D::Error::custom("a lease must last a second or more"));
    }
    Ok(lease)
}

fn zero_as_none<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Seconds>, D::Error> {
    Ok(Some(seconds(from)?).filter(|seconds| !seconds.get().is_zero()))
}

fn none_as_zero<S: serde::Serializer>(time: &Option<Seconds>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(time.map_or(0.0, |Seconds(seconds)| seconds))
}

fn level<'de, D: Deserializer<'de>>(from: D) -> Result<TrustLevel, D::Error> {
    let level = u8::deserialize(from).map(|level| level.to_string().parse());
    level.ok().and_then(Result::ok).ok_or_else(|| D::Error::custom("0, 1 or 2 is expected"))
}

fn as_number<S: serde::Serializer>(level: &TrustLevel, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u8(*level as u8)
}

/// The section `log`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LogConfig {
    /// The filter: `info`, or any filter that `RUST_LOG` may have.
    #[serde(deserialize_with = "filter")]
    pub(crate) filter: String,
    /// The format.
    pub(crate) format: LogFormat,
}

impl Default for LogConfig {
    fn default() -> LogConfig {
        let filter = "info,scylla=off,aws_config=off".to_owned();
        LogConfig { filter, format: LogFormat::Auto }
    }
}

fn filter<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let filter = String::deserialize(from)?;
    EnvFilter::try_new(&filter)
        .map_err(|error| D::Error::custom(format!("`{filter}` is not a filter: {error}")))?;
    Ok(filter)
}

/// The formats of logs.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    #[default]
    Auto,
    Text,
    Json,
}

impl LogFormat {
    pub(crate) fn is_json(self) -> bool {
        match self {
            LogFormat::Auto => !std::io::stderr().is_terminal(),
            LogFormat::Text => false,
            LogFormat::Json => true,
        }
    }
}

/// A length of time, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Seconds(f64);

/// The shortest lease. A shorter lease leaves no time for calls.
const SHORTEST_LEASE: Duration = Duration::from_secs(1);

/// The shortest time except 0: one millisecond. Nothing can be done in less time.
const SHORTEST: f64 = 0.001;

/// The longest time: one year.
const LONGEST: f64 = 365.0 * 24.0 * 3_600.0;

impl Seconds {
    pub(crate) fn get(self) -> Duration {
        Duration::from_secs_f64(self.0)
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Seconds, D::Error> {
        let seconds = seconds(from)?;
        match seconds.get().is_zero() {
            true => Err(D::Error::custom("more than 0 seconds are expected")),
            false => Ok(seconds),
        }
    }
}

/// Reads a length of time: 0, or a time in which something can be done.
fn seconds<'de, D: Deserializer<'de>>(from: D) -> Result<Seconds, D::Error> {
    let seconds = f64::deserialize(from)?;
    if seconds == 0.0 || (SHORTEST..=LONGEST).contains(&seconds) {
        Ok(Seconds(seconds))
    } else {
        let wanted = format!("a number of seconds from {SHORTEST} to a year is expected");
        Err(D::Error::custom(wanted))
    }
}
