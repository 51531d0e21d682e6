//! How the session is made: everything that holds for all requests.

use std::{sync::Arc, time::Duration};

use clock::Clock;
use istorage::{Error, Result};
use scylla::{
    client::{
        execution_profile::ExecutionProfile, session::Session, session_builder::SessionBuilder,
    },
    policies::retry::FallthroughRetryPolicy,
    statement,
};

use crate::{Config, Consistency, SerialConsistency, errors, timestamps::Timestamps, tls};

/// A connection that is silent for so long is asked for a sign of life, and given up if none comes in the same time.
///
/// Together with the linger time of zero this bounds how late a request may still leave a node that was cut off: what
/// waits in a connection that is given up is thrown away, by the kernel too.
const KEEPALIVE: Duration = Duration::from_secs(5);

pub(crate) async fn connect(config: &Config, clock: &Clock) -> Result<Session> {
    config.check().map_err(Error::of_setting)?;
    let mut builder = SessionBuilder::new()
        .known_nodes(&config.contact_points)
        .default_execution_profile_handle(profile(config).into_handle())
        .timestamp_generator(Arc::new(Timestamps::new(clock.clone())))
        .keepalive_interval(KEEPALIVE)
        .keepalive_timeout(KEEPALIVE)
        .tcp_zero_linger()
        .auto_await_schema_agreement(false)
        .fetch_full_schema_metadata(false);
    if let Some(datacenter) = &config.datacenter {
        builder = builder.prefer_datacenter(datacenter.clone());
    }
    if let Some(login) = &config.login {
        builder = builder.user(&login.username, login.password().map_err(Error::of_setting)?);
    }
    if let Some(tls) = &config.tls {
        builder = builder.tls_context(Some(tls::client_config(tls).map_err(Error::of_setting)?));
    }
    let session = builder.build().await.map_err(errors::not_connected)?;
    if let Some(datacenter) = &config.datacenter {
        check_datacenter(&session, datacenter)?;
    }
    Ok(session)
}

/// Nothing below us repeats a request or sends it twice, and nothing but the caller's deadline ends one.
fn profile(config: &Config) -> ExecutionProfile {
    ExecutionProfile::builder()
        .consistency(match config.consistency {
            Consistency::Quorum => statement::Consistency::Quorum,
            Consistency::LocalQuorum => statement::Consistency::LocalQuorum,
        })
        .serial_consistency(Some(match config.serial_consistency {
            SerialConsistency::Serial => statement::SerialConsistency::Serial,
            SerialConsistency::LocalSerial => statement::SerialConsistency::LocalSerial,
        }))
        .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
        .speculative_execution_policy(None)
        .request_timeout(None)
        .build()
}

/// With a name that no node has, every request would fail for want of a node.
fn check_datacenter(session: &Session, wanted: &str) -> Result<()> {
    let names = datacenters(session);
    if names.iter().any(|(name, _)| name == wanted) {
        return Ok(());
    }
    let names: Vec<&str> = names.iter().map(|(name, _)| name.as_str()).collect();
    Err(Error::invalid(format!(
        "no node is in the datacenter `{wanted}`; this cluster has: {}",
        names.join(", ")
    )))
}

/// The datacenters of the cluster, by name, with the number of their nodes.
pub(crate) fn datacenters(session: &Session) -> Vec<(String, usize)> {
    let mut names = std::collections::BTreeMap::new();
    for node in session.get_cluster_state().get_nodes_info() {
        if let Some(name) = &node.datacenter {
            *names.entry(name.clone()).or_default() += 1;
        }
    }
    names.into_iter().collect()
}
