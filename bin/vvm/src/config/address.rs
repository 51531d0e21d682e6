//! Addresses in the configuration.

use std::net::SocketAddr;

use serde::{Deserialize, Deserializer, de::Error};

use crate::cli;

pub(super) fn address<'de, D: Deserializer<'de>, A: From<SocketAddr>>(
    from: D,
) -> Result<A, D::Error> {
    let text = String::deserialize(from).map_err(|_| {
        let example = "an IP and a port in quotes are expected, such as \"127.0.0.1:8822\"";
        D::Error::custom(example)
    })?;
    cli::address(&text).map(A::from).map_err(D::Error::custom)
}
