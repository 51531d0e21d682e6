//! Sets up the session, with the settings that hold for all requests.

use std::sync::Arc;

use clock::Clock;
use futures::future::BoxFuture;
use istorage::{Error, Result};
use scylla::{
    client::{
        execution_profile::ExecutionProfile, session::Session, session_builder::SessionBuilder,
    },
    policies::retry::FallthroughRetryPolicy,
    statement,
};

use crate::{
    CassandraConfig, QuorumConsistency, SerialConsistency, errors,
    limits::{KEEPALIVE, KEEPALIVE_TIMEOUT},
    probe::Probe,
    routing::Routing,
    server_settings,
    session::SessionClient,
    suspects::Suspects,
    timestamps::Timestamps,
    tls,
};

/// Connects to the servers.
///
/// The future is boxed as a trait object, so that a crate that awaits it does not compile the code
/// of the client again.
pub(crate) fn connect<'a>(
    config: &'a CassandraConfig,
    clock: &'a Clock,
) -> BoxFuture<'a, Result<SessionClient>> {
    Box::pin(open_session(config, clock))
}

async fn open_session(config: &CassandraConfig, clock: &Clock) -> Result<SessionClient> {
    config.check().map_err(Error::invalid_setting)?;
    let suspects = Arc::new(Suspects::new(clock.clone()));
    let routing = Routing::other(Arc::clone(&suspects));
    let tls =
        config.tls.as_ref().map(tls::client_config).transpose().map_err(Error::invalid_setting)?;
    let probe = Arc::new(Probe::new(clock.clone(), tls.clone()));
    let mut builder = SessionBuilder::new()
        .known_nodes(probe.answering(&config.contact_points).await)
        .address_translator(Arc::clone(&probe) as _)
        .tls_context(tls)
        .default_execution_profile_handle(profile(config, routing).into_handle())
        .timestamp_generator(Arc::new(Timestamps::new(clock.clone())))
        .keepalive_interval(KEEPALIVE)
        .keepalive_timeout(KEEPALIVE_TIMEOUT)
        .tcp_zero_linger()
        .auto_await_schema_agreement(false)
        .fetch_full_schema_metadata(false);
    if let Some(datacenter) = &config.datacenter {
        builder = builder.prefer_datacenter(datacenter.clone());
    }
    if let Some(login) = &config.login {
        builder = builder.user(&login.username, login.password().map_err(Error::invalid_setting)?);
    }
    let session = builder.build().await.map_err(errors::not_connected)?;
    probe.end();
    if let Some(datacenter) = &config.datacenter {
        check_datacenter(&datacenters(&session), datacenter)?;
    }
    server_settings::check(&session, clock, config.login.is_some()).await?;
    Ok(SessionClient::new(session, clock.clone(), suspects))
}

/// The execution profile of all requests. The client never repeats a request and never sends it
/// twice. Only the caller's deadline ends a request.
fn profile(config: &CassandraConfig, routing: Routing) -> ExecutionProfile {
    ExecutionProfile::builder()
        .consistency(match config.consistency {
            QuorumConsistency::Quorum => statement::Consistency::Quorum,
            QuorumConsistency::LocalQuorum => statement::Consistency::LocalQuorum,
        })
        .serial_consistency(Some(match config.serial_consistency {
            SerialConsistency::Serial => statement::SerialConsistency::Serial,
            SerialConsistency::LocalSerial => statement::SerialConsistency::LocalSerial,
        }))
        .load_balancing_policy(Arc::new(routing))
        .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
        .speculative_execution_policy(None)
        .request_timeout(None)
        .build()
}

/// Checks that at least one server is in the configured datacenter. With any other name every
/// request would fail, because there would be no server to send it to.
///
/// # Errors
/// `Unavailable` if the client knows the datacenter of no server. Then the client could not read
/// where the servers are, for example because the contact point has just started.
fn check_datacenter(names: &[(String, usize)], wanted: &str) -> Result<()> {
    if names.iter().any(|(name, _)| name == wanted) {
        return Ok(());
    }
    if names.is_empty() {
        let reason = "no Cassandra server tells its datacenter";
        return Err(Error::unavailable(reason));
    }
    let names: Vec<&str> = names.iter().map(|(name, _)| name.as_str()).collect();
    Err(Error::invalid(format!(
        "no server is in the datacenter `{wanted}`; this cluster has: {}",
        names.join(", ")
    )))
}

/// The datacenters of the cluster, sorted by name, each with its number of servers.
pub(crate) fn datacenters(session: &Session) -> Vec<(String, usize)> {
    let mut names = std::collections::BTreeMap::new();
    for node in session.get_cluster_state().get_nodes_info() {
        if let Some(name) = &node.datacenter {
            *names.entry(name.clone()).or_default() += 1;
        }
    }
    names.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use istorage::ErrorKind;

    use super::*;

    /// A contact point that had just started answered the client, but not its queries about the
    /// cluster. The node ended and told its operator to correct the datacenter, "this cluster has:"
    /// and nothing.
    #[test]
    fn a_cluster_that_is_not_known_yet_has_no_wrong_datacenter() {
        let kind = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| ((*name).to_owned(), 1)).collect();
            check_datacenter(&names, "dc1").map_err(|error| error.kind())
        };
        assert_eq!(kind(&["dc1", "dc2"]), Ok(()));
        assert_eq!(kind(&["dc2"]), Err(ErrorKind::Invalid));
        assert_eq!(kind(&[]), Err(ErrorKind::Unavailable));
    }
}
