//! The settings of the servers of Cassandra.

use clock::{Clock, Instant};
use istorage::StorageDriver;
use istorage_cassandra::{CassandraConfig, CassandraDriver, ServerSettings};

use crate::storage_target::StorageTarget;

/// Asks each server to which a new connection leads.
pub async fn settings(
    config: &CassandraConfig,
    clock: &Clock,
    deadline: Instant,
) -> istorage::Result<Vec<ServerSettings>> {
    let driver = CassandraDriver::connect(config.clone(), clock.clone(), deadline).await?;
    let settings = driver.server_settings(deadline).await;
    driver.close().await;
    settings
}

/// Returns the settings of the servers with which a storage may break a promise, as lines for an
/// operator. Other storages have no such settings.
pub(crate) async fn problems(
    target: &StorageTarget,
    clock: &Clock,
    deadline: Instant,
) -> istorage::Result<Vec<String>> {
    let StorageTarget::Cassandra(config) = target else { return Ok(Vec::new()) };
    let mut lines = Vec::new();
    for settings in settings(config, clock, deadline).await? {
        let server = settings.server();
        lines.extend(settings.problems().into_iter().map(|it| format!("{server}: {}.", it.what)));
        if !settings.are_known() {
            lines.push(format!(
                "{server} does not tell its settings: read docs/storage.md#settings-of-the-servers, and check them yourself."
            ));
        }
    }
    Ok(lines)
}
