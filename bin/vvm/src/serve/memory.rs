//! The memory that a node may take.

use ctl::StorageTarget;
use http_api::HttpApiSettings;
use processor::{KNOWN_ROWS_BYTES, SeriesPolicy};
use vvm::AppSettings;

use crate::config::VvmConfig;

/// Returns the most memory that the node may take, in bytes.
///
/// The sum counts bodies and answers as their limits allow, the cache of redb and the writes that
/// wait for it, the connections, the rows that partitions read ahead, the numbers that they keep,
/// the counters of fast series, the events of followed logs, and the rest of the program.
pub(crate) fn most_memory(
    VvmConfig { http, sequences, .. }: &VvmConfig,
    target: &StorageTarget,
    connections: usize,
    apps: &[AppSettings],
) -> usize {
    const CONNECTION: usize = 32 << 10;
    const TLS: usize = 16 << 10;
    const PROGRAM: usize = 160 << 20;
    /// A number of the cache of a sequencer takes 22 bytes if its workspace has three sequences,
    /// which is the least, and the table of the cache grows in steps.
    const CACHED_NUMBER: usize = 32;
    let cache = match target {
        StorageTarget::Redb(config) => {
            config.cache_bytes + istorage_redb::TABLES_BYTES + istorage_redb::WAITING_BYTES
        }
        StorageTarget::Mem | StorageTarget::Cassandra(_) | StorageTarget::DynamoDb(_) => 0,
    };
    let requests = http.bodies_bytes.get().saturating_add(http.answers_bytes.get());
    // The last node that lives owns all partitions.
    let partitions: usize = apps.iter().map(|app| usize::from(app.partitions.get())).sum();
    let connection = if http.tls.is_some() { CONNECTION + TLS } else { CONNECTION };
    let cached = sequences.cached_numbers.saturating_mul(CACHED_NUMBER);
    let partition = KNOWN_ROWS_BYTES.saturating_add(cached);
    let parts = connections * connection + PROGRAM;
    let parts = partitions.saturating_mul(partition).saturating_add(parts);
    let followed = HttpApiSettings::most_followed_bytes(http.followers.get(), connections);
    [cache, parts, numbers(apps), followed].into_iter().fold(requests, usize::saturating_add)
}

/// Returns the most memory of the counters that all fast series hold.
fn numbers(apps: &[AppSettings]) -> usize {
    let series = apps.iter().flat_map(|app| app.application.declarations().series());
    let bytes = series.map(|declared| match &declared.policy {
        SeriesPolicy::Fast(settings) => settings.most_memory(),
        SeriesPolicy::Gapless { .. } => 0,
    });
    bytes.fold(0, usize::saturating_add)
}
