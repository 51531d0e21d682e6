//! The section `traces` of the configuration.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The section `traces`: the node exports spans of requests.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TracesConfig {
    /// The collector, as `http://host:port` or `https://host:port`.
    pub(crate) endpoint: String,
    /// The part of the requests without a `traceparent` that is traced, from 0 to 1.
    #[serde(default = "usual_ratio")]
    pub(crate) sample_ratio: f64,
    /// The authorities that sign the certificate of the collector, in PEM.
    pub(crate) ca_file: Option<PathBuf>,
    /// The file with the token that the collector wants.
    pub(crate) token_file: Option<PathBuf>,
}

fn usual_ratio() -> f64 {
    0.01
}
