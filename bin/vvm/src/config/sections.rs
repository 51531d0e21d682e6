//! The sections of the configuration but for storage and applications.

use std::{
    io::IsTerminal,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use serde::{Deserialize, Deserializer, Serialize, de::Error};

use eventlog::TrustLevel;

/// The node among others.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NodeConfig {
    /// Where clients of other nodes find this one; without it where the API listens.
    pub(crate) advertised: Option<SocketAddr>,
    /// How many nodes work at the same time. The others wait.
    pub(crate) slots: u32,
    /// How long a lease lasts.
    pub(crate) lease_seconds: Seconds,
    /// How long the lead is waited for; 0 for ever.
    pub(crate) acquire_seconds: Seconds,
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
            slots: 1,
            lease_seconds: Seconds(20.0),
            acquire_seconds: Seconds(120.0),
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
    pub(crate) connections: usize,
    /// How long the head of a request may take, and a connection be idle.
    pub(crate) head_seconds: Seconds,
    /// How many bytes a body may have.
    pub(crate) body_bytes: usize,
    /// How long a body may take to come.
    pub(crate) body_seconds: Seconds,
    /// How long a command may take, with the time that it waits.
    pub(crate) command_seconds: Seconds,
    /// How many commands may wait in a partition.
    pub(crate) queue: usize,
}

impl Default for HttpConfig {
    fn default() -> HttpConfig {
        HttpConfig {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8822)),
            anybody_may_do_everything: false,
            connections: 15_000,
            head_seconds: Seconds(30.0),
            body_bytes: 1 << 20,
            body_seconds: Seconds(10.0),
            command_seconds: Seconds(10.0),
            queue: 1_000,
        }
    }
}

/// The admin endpoint.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AdminConfig {
    /// Where it listens.
    pub(crate) listen: SocketAddr,
}

impl Default for AdminConfig {
    fn default() -> AdminConfig {
        AdminConfig { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 55_555)) }
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

fn level<'de, D: Deserializer<'de>>(from: D) -> Result<TrustLevel, D::Error> {
    u8::deserialize(from)?.to_string().parse().map_err(D::Error::custom)
}

fn as_number<S: serde::Serializer>(level: &TrustLevel, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u8(*level as u8)
}

/// What is logged, and how.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LogConfig {
    /// What: `info`, or as `RUST_LOG`.
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

/// No span is longer: a year.
const LONGEST: f64 = 365.0 * 24.0 * 3_600.0;

impl Seconds {
    pub(crate) fn get(self) -> Duration {
        Duration::from_secs_f64(self.0)
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Seconds, D::Error> {
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
        if (0.0..=LONGEST).contains(&seconds) {
            Ok(Seconds(seconds))
        } else {
            Err(D::Error::custom("a number of seconds from 0 to a year is expected"))
        }
    }
}
