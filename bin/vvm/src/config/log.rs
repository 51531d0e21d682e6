//! The section `log` of the configuration.

use std::io::IsTerminal;

use serde::{Deserialize, Deserializer, Serialize, de::Error};

use crate::log_filter::log_filter;

/// The section `log`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LogConfig {
    /// The filter: a level, and levels of targets, such as `warn,vvm=debug`.
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
    log_filter(&filter)
        .map_err(|why| D::Error::custom(format!("`{filter}` is not a filter: {why}")))?;
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
