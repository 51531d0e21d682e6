//! The settings of the HTTP API and of the admin endpoint, from the configuration.

use std::{sync::Arc, time::Duration};

use http_api::{ClusterSettings, HttpApiSettings};
use http_server::{Authenticator, HttpLimits, most_socket_bytes};
use vvm::StopShare;

use super::tls::NodeTls;
use crate::config::{ClusterConfig, VvmConfig};

/// The most time for the head of a request to the admin endpoint: a client of this endpoint sends
/// its request at once.
const ADMIN_HEAD: Duration = Duration::from_secs(5);

/// The number of connections of the admin endpoint.
const ADMIN_CONNECTIONS: usize = 100;

/// Returns the most memory that the kernel may take for the connections of clients, in bytes.
pub(crate) fn most_socket_memory(connections: usize) -> usize {
    most_socket_bytes(connections).saturating_add(most_socket_bytes(ADMIN_CONNECTIONS))
}

/// Makes the settings of the API, for a number of connections that the machine allows.
pub(super) fn api_settings(
    config: &VvmConfig,
    connections: usize,
    tls: &NodeTls,
    authenticator: Option<Arc<dyn Authenticator>>,
) -> HttpApiSettings {
    let VvmConfig { http, node, .. } = config;
    HttpApiSettings {
        listen: http.listen,
        tls: tls.http.clone(),
        limits: HttpLimits {
            drain_time: StopShare::Requests.of(node.stop_seconds.get()),
            connections,
            head_time: http.head_seconds.get(),
            body_time: http.body_seconds.get(),
            body_bytes: http.body_bytes.get(),
            answer_time: http.answer_seconds.get(),
            ..HttpLimits::default()
        },
        command_time: http.command_seconds.get(),
        bodies_bytes: http.bodies_bytes.get(),
        answers_bytes: http.answers_bytes.get(),
        logs: http.logs.get(),
        followers: http.followers.get(),
        // Clients with tokens know the node by its name.
        only_local: !http.allow_unauthenticated && authenticator.is_none(),
        authenticator,
        page_origins: http.page_origins.clone(),
        traced: config.traces.is_some(),
        commands_per_second: config.access.as_ref().map_or(0, |it| it.commands_per_second),
    }
}

/// Makes the settings of the cluster port; `None` if the node has none.
pub(super) fn cluster_settings(cluster: &ClusterConfig, tls: &NodeTls) -> Option<ClusterSettings> {
    let tls = tls.cluster.clone();
    Some(ClusterSettings { tls, ..ClusterSettings::new(cluster.listen?) })
}

/// Makes the limits of the admin endpoint from those of the API.
pub(super) fn admin_limits(config: &VvmConfig, api: HttpLimits) -> HttpLimits {
    HttpLimits {
        connections: ADMIN_CONNECTIONS,
        head_time: api.head_time.min(ADMIN_HEAD),
        drain_time: StopShare::AdminRequests.of(config.node.stop_seconds.get()),
        ..api
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{NodeTls, admin_limits, api_settings};
    use crate::config::VvmConfig;

    const TEXT: &str = "
        [node]
        stop_seconds = 16

        [http]
        listen = \"127.0.0.1:7001\"
        allow_unauthenticated = true
        connections = 702
        head_seconds = 7.03
        body_bytes = 704
        body_seconds = 7.05
        command_seconds = 7.06
        answer_seconds = 7.07
        bodies_bytes = 7_008
        answers_bytes = 7_009
        logs = 710
        followers = 711
    ";

    /// Every key has a value of its own, so a key that sets another limit is found.
    #[test]
    fn each_key_of_the_section_http_sets_its_limit() {
        let config = VvmConfig::of_text(TEXT);
        let connections = config.http.connections.get();
        let api = api_settings(&config, connections, &NodeTls::default(), None);
        let limits = api.limits;
        assert_eq!(api.listen.port(), 7_001);
        assert!(!api.only_local);
        assert_eq!(limits.connections, 702);
        assert_eq!(limits.head_time, Duration::from_millis(7_030));
        assert_eq!(limits.body_bytes, 704);
        assert_eq!(limits.body_time, Duration::from_millis(7_050));
        assert_eq!(api.command_time, Duration::from_millis(7_060));
        assert_eq!(limits.answer_time, Duration::from_millis(7_070));
        assert_eq!(api.bodies_bytes, 7_008);
        assert_eq!(api.answers_bytes, 7_009);
        assert_eq!(api.logs, 710);
        assert_eq!(api.followers, 711);
        assert_eq!(limits.drain_time, Duration::from_secs(6));

        let admin = admin_limits(&config, limits);
        assert_eq!(admin.connections, 100);
        assert_eq!(admin.head_time, Duration::from_secs(5));
        assert_eq!(admin.drain_time, Duration::from_secs(1));
        assert_eq!(admin.answer_time, limits.answer_time, "a backup waits for a slow disk");
        assert_eq!((admin.body_bytes, admin.body_time), (limits.body_bytes, limits.body_time));
    }
}
