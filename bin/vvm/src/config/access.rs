//! The section `access` of the configuration.

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use super::seconds::Seconds;

/// The section `access`: clients need tokens.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AccessConfig {
    /// The public keys of the issuer of tokens, as a JWKS file.
    pub(crate) keys_file: PathBuf,
    /// The issuer that each token names (`iss`).
    pub(crate) issuer: String,
    /// The audience that each token names (`aud`).
    #[serde(default = "usual_audience")]
    pub(crate) audience: String,
    /// The difference between the clocks of the issuer and of the node that does no harm.
    #[serde(default = "usual_leeway")]
    pub(crate) leeway_seconds: Seconds,
    /// The most commands that a principal may send to the node in a second. 0 is no limit.
    #[serde(default)]
    pub(crate) commands_per_second: u32,
}

fn usual_audience() -> String {
    "vvm".to_owned()
}

fn usual_leeway() -> Seconds {
    Seconds::of(Duration::from_secs(30))
}
