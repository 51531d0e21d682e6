//! The sections of the configuration but for storage and applications.

use std::{
    io::IsTerminal,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    path::PathBuf,
    time::Duration,
};

use serde::{Deserialize, Deserializer, Serialize, de::Error};

use eventlog::TrustLevel;
use ielections::Slot;
use tracing_subscriber::EnvFilter;

/// The node among others.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NodeConfig {
    /// Where clients of other nodes find this one; without it where the API listens.
    pub(crate) advertised: Option<SocketAddr>,
    /// How many nodes work at the same time. The others wait.
    #[serde(deserialize_with = "slots", serialize_with = "slots_as_number")]
    pub(crate) slots: Slot,
    /// How long a lease lasts.
    #[serde(deserialize_with = "lease")]
    pub(crate) lease_seconds: Seconds,
    /// How long the lead is waited for; 0 for ever.
    #[serde(deserialize_with = "or_for_ever", serialize_with = "for_ever_is_0")]
    pub(crate) acquire_seconds: Option<Seconds>,
    /// How long everything may take to stop.
    pub(crate) stop_seconds: Seconds,
    /// How long a call to the storage may take; without it a tenth of the lease.
    pub(crate) call_seconds: Option<Seconds>,
    /// Where the node remembers its lease, so that it need not wait for that after a crash. One process has it.
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

/// The API.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HttpConfig {
    /// Where it listens.
    pub(crate) listen: SocketAddr,
    /// It asks nobody who he is. Whoever can reach it can do everything.
    pub(crate) anybody_may_do_everything: bool,
    /// How many connections there may be.
    pub(crate) connections: NonZeroUsize,
    /// How long the head of a request may take, and a connection be idle or not take its answer.
    pub(crate) head_seconds: Seconds,
    /// How many bytes a body may have.
    pub(crate) body_bytes: NonZeroUsize,
    /// How long a body may take to come.
    pub(crate) body_seconds: Seconds,
    /// How long a command may take, with the time that it waits.
    pub(crate) command_seconds: Seconds,
    /// How long a client may take to receive an answer.
    pub(crate) answer_seconds: Seconds,
    /// How many bytes all bodies together may have.
    pub(crate) bodies_bytes: NonZeroUsize,
    /// How many bytes all answers together may have.
    pub(crate) answers_bytes: NonZeroUsize,
    /// How many logs may be told at the same time.
    pub(crate) logs: NonZeroUsize,
    /// How many commands may wait in a partition.
    pub(crate) queue: NonZeroUsize,
}

impl Default for HttpConfig {
    fn default() -> HttpConfig {
        HttpConfig {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8822)),
            anybody_may_do_everything: false,
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

/// The admin endpoint.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AdminConfig {
    /// Where it listens.
    pub(crate) listen: SocketAddr,
    /// It asks nobody who he is. Whoever can reach it can let the node step down.
    pub(crate) anybody_may_do_everything: bool,
}

impl Default for AdminConfig {
    fn default() -> AdminConfig {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 55_555));
        AdminConfig { listen, anybody_may_do_everything: false }
    }
}

/// How events are written, and where numbers are kept.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SequencesConfig {
    /// 0, 1 or 2. Fixed when an application is deployed for the first time.
    #[serde(deserialize_with = "level", serialize_with = "as_number")]
    pub(crate) trust_level: TrustLevel,
    /// Where there are none yet, the logs are read from their beginning once.
    pub(crate) storage: SequencesIn,
    /// How many numbers are kept in memory, in each partition.
    pub(crate) cached_numbers: usize,
}

impl Default for SequencesConfig {
    fn default() -> SequencesConfig {
        let storage = SequencesIn::default();
        SequencesConfig { trust_level: TrustLevel::Zero, storage, cached_numbers: 10_000 }
    }
}

/// Where numbers are kept.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SequencesIn {
    /// In the system keyspace.
    #[default]
    System,
    /// In the keyspace of the application, as rows of `sys.SequencesView`.
    View,
}

fn slots<'de, D: Deserializer<'de>>(from: D) -> Result<Slot, D::Error> {
    let slots = Slot::new(u32::deserialize(from)?);
    slots.ok_or_else(|| D::Error::custom("at least one node works: 1 or more"))
}

fn slots_as_number<S: serde::Serializer>(slots: &Slot, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u32(slots.get())
}

fn lease<'de, D: Deserializer<'de>>(from: D) -> Result<Seconds, D::Error> {
    let lease = Seconds::deserialize(from)?;
    if lease.get() < SHORTEST_LEASE {
        return Err(D::Error::custom("a lease lasts a second or more"));
    }
    Ok(lease)
}

fn or_for_ever<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Seconds>, D::Error> {
    Ok(Some(seconds(from)?).filter(|seconds| !seconds.get().is_zero()))
}

fn for_ever_is_0<S: serde::Serializer>(time: &Option<Seconds>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(time.map_or(0.0, |Seconds(seconds)| seconds))
}

fn level<'de, D: Deserializer<'de>>(from: D) -> Result<TrustLevel, D::Error> {
    let level = u8::deserialize(from).map(|level| level.to_string().parse());
    level.ok().and_then(Result::ok).ok_or_else(|| D::Error::custom("0, 1 or 2 is expected"))
}

fn as_number<S: serde::Serializer>(level: &TrustLevel, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u8(*level as u8)
}

/// What is logged, and how.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LogConfig {
    /// What: `info`, or as `RUST_LOG`.
    #[serde(deserialize_with = "filter")]
    pub(crate) filter: String,
    /// How.
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
    EnvFilter::try_new(&filter).map_err(D::Error::custom)?;
    Ok(filter)
}

/// How logs are written.
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

/// A span of time, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Seconds(f64);

/// In a shorter one there is no time for calls.
const SHORTEST_LEASE: Duration = Duration::from_secs(1);

/// In a shorter span nothing is done: a millisecond.
const SHORTEST: f64 = 0.001;

/// No span is longer: a year.
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

/// None, or a span that something can be done in.
fn seconds<'de, D: Deserializer<'de>>(from: D) -> Result<Seconds, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Number {
        Whole(u32),
        Part(f64),
    }
    let seconds = match Number::deserialize(from) {
        Ok(Number::Whole(seconds)) => f64::from(seconds),
        Ok(Number::Part(seconds)) => seconds,
        Err(_) => {
            return Err(D::Error::custom("a number of seconds is expected, such as 20 or 0.5"));
        }
    };
    if seconds == 0.0 || (SHORTEST..=LONGEST).contains(&seconds) {
        Ok(Seconds(seconds))
    } else {
        let wanted = format!("a number of seconds from {SHORTEST} to a year is expected");
        Err(D::Error::custom(wanted))
    }
}
