//! The section `node` of the configuration.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use ielections::Timing;
use serde::{Deserialize, Deserializer, Serialize, de::Error};
use vvm::NodeSettings;

use super::{
    HttpConfig,
    address::address,
    seconds::{Seconds, none_as_zero, zero_as_none},
};

/// The shortest lease. A shorter lease leaves no time for calls.
const SHORTEST_LEASE: Duration = Duration::from_secs(1);

/// The section `node`: the node as a part of its cluster.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NodeConfig {
    /// The address where clients of other nodes find this node. The default is the address of the
    /// API.
    #[serde(deserialize_with = "address")]
    pub(crate) advertised: Option<SocketAddr>,
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
    /// The time from a write of the lease to its renewal. The default is a quarter of the lease.
    pub(crate) renew_seconds: Option<Seconds>,
    /// The time for further tries of a renewal that fails. The default is a quarter of the lease.
    pub(crate) renew_retry_seconds: Option<Seconds>,
    /// The most time for a call to the lease. The default is a twentieth of the lease.
    pub(crate) renew_call_seconds: Option<Seconds>,
    /// The time for the work to stop after the leadership is lost. Then the process is killed. The
    /// default is a quarter of the lease.
    pub(crate) stop_grace_seconds: Option<Seconds>,
    /// The largest difference between the clocks of the storage's servers. The default is a
    /// fortieth of the lease.
    pub(crate) clock_skew_seconds: Option<Seconds>,
    /// The folder where the node remembers its lease, so that it need not wait for the lease after
    /// a crash. Only one process may use a folder.
    pub(crate) folder: PathBuf,
}

impl Default for NodeConfig {
    fn default() -> NodeConfig {
        let usual = NodeSettings::new(HttpConfig::default().listen);
        NodeConfig {
            advertised: None,
            lease_seconds: Seconds::of(usual.lease.duration),
            acquire_seconds: usual.acquire_within.map(Seconds::of),
            stop_seconds: Seconds::of(usual.stop_within),
            call_seconds: None,
            renew_seconds: None,
            renew_retry_seconds: None,
            renew_call_seconds: None,
            stop_grace_seconds: None,
            clock_skew_seconds: None,
            folder: PathBuf::from("data"),
        }
    }
}

fn lease<'de, D: Deserializer<'de>>(from: D) -> Result<Seconds, D::Error> {
    let lease = Seconds::deserialize(from)?;
    if lease.get() < SHORTEST_LEASE {
        return Err(D::Error::custom("a lease must last a second or more"));
    }
    Ok(lease)
}

impl NodeConfig {
    /// The split of the lease: the usual one, with the parts that are configured.
    pub(crate) fn timing(&self) -> Timing {
        self.timing_of(self.lease_seconds.get())
    }

    /// The split of a lease of this length, with the parts that are configured.
    pub(crate) fn timing_of(&self, lease: Duration) -> Timing {
        let usual = Timing::of(lease);
        let or = |part: Option<Seconds>, usual| part.map_or(usual, Seconds::get);
        Timing {
            renew_every: or(self.renew_seconds, usual.renew_every),
            retry_for: or(self.renew_retry_seconds, usual.retry_for),
            call_timeout: or(self.renew_call_seconds, usual.call_timeout),
            stop_grace: or(self.stop_grace_seconds, usual.stop_grace),
            clock_skew: or(self.clock_skew_seconds, usual.clock_skew),
            ..usual
        }
    }
}
