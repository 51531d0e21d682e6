//! The settings of a node, from its configuration.

mod checks;
mod lease;

use std::{sync::Arc, time::Duration};

use clock::Clock;
use ctl::{CommandError, StorageTarget};
use eventlog::TrustLevel;
use tracing::info;
use vvm::{AppSettings, InvalidNodeSettings, NodeSettings, NumbersIn};

use self::{
    checks::{check_advertised, check_cluster, check_listens, check_memory, check_seats},
    lease::{check_lease, culprit},
};
use super::{access::NodeAccess, memory::most_memory, tls::NodeTls, traces::NodeTraces};
use crate::config::{self, VvmConfig};

/// Checks whether a node could start with a configuration. The storage is not asked.
///
/// Returns the most memory that the node would take, in bytes.
pub(crate) fn check(config: &VvmConfig) -> Result<usize, CommandError> {
    let target = config.storage.to_target(&config.source)?;
    let (_, apps) = plan(config, &target)?;
    NodeTls::read(config)?;
    NodeAccess::read(config, &Clock::system())?;
    NodeTraces::read(config)?;
    let connections = config.http.connections.get();
    Ok(most_memory(config, &target, connections, &apps))
}

/// Makes the settings of a node from the configuration, or the error that names the wrong key.
pub(crate) fn plan(
    config: &VvmConfig,
    target: &StorageTarget,
) -> Result<(NodeSettings, Vec<AppSettings>), CommandError> {
    check_listens(config)?;
    check_memory(config)?;
    check_seats(config, target)?;
    check_cluster(config, target)?;
    let settings = settings(config, target);
    check_advertised(config, target, settings.advertised)?;
    let apps = apps(config)?;
    settings.check(&apps).map_err(|bad| {
        let twice;
        let key: &[&str] = match &bad {
            InvalidNodeSettings::AppTwice(name) => {
                let second = config.apps.iter().rposition(|app| app.name == *name);
                twice = second.unwrap_or_default().to_string();
                &["apps", &twice, "name"]
            }
            InvalidNodeSettings::LongCalls { call, .. } if config.node.call_seconds.is_none() => {
                let room = |node: &config::NodeConfig| {
                    let timing = node.timing();
                    timing.retry_for.saturating_sub(timing.call_timeout)
                };
                &["node", culprit(&config.node, |node| *call <= room(node))]
            }
            InvalidNodeSettings::LongCalls { .. } => &["node", "call_seconds"],
            InvalidNodeSettings::ShortLease { .. } | InvalidNodeSettings::Lease(_) => {
                &["node", "lease_seconds"]
            }
        };
        config.source.wrong(key, bad)
    })?;
    let levels: Vec<_> = apps.iter().map(|app| app.level).collect();
    check_lease(config, target, &settings, &levels)?;
    Ok((settings, apps))
}

/// Makes the settings of a node for applications of a trust level, or the error that names the
/// wrong key.
pub(crate) fn settings_for(
    config: &VvmConfig,
    target: &StorageTarget,
    level: TrustLevel,
) -> Result<NodeSettings, CommandError> {
    check_seats(config, target)?;
    let settings = settings(config, target);
    check_lease(config, target, &settings, &[level])?;
    Ok(settings)
}

fn settings(config: &VvmConfig, target: &StorageTarget) -> NodeSettings {
    let node = &config.node;
    let lease = node.timing();
    let usual = NodeSettings::new(node.advertised.unwrap_or(config.http.listen));
    NodeSettings {
        system: config.storage.system_keyspace.clone().unwrap_or(usual.system),
        seats: config.cluster.seats(target.is_embedded()),
        lease,
        acquire_within: node.acquire_seconds.map(config::Seconds::get),
        request_call_timeout: node.call_seconds.map_or_else(
            || NodeSettings::usual_request_call_timeout(lease.duration),
            config::Seconds::get,
        ),
        cluster: config.cluster.reached_at().map(|(at, _)| at),
        drain_within: config.cluster.drain_seconds.get(),
        stop_within: node.stop_seconds.get(),
        ..usual
    }
}

/// Makes the settings of all applications. If none is configured, the node has the demo
/// application.
pub(super) fn apps(config: &VvmConfig) -> Result<Vec<AppSettings>, CommandError> {
    let mut apps: Vec<AppSettings> = Vec::new();
    for (at, app) in config.apps.iter().enumerate() {
        let application = app.application(&config.source.folder());
        let wrong = |(key, why): (String, String)| {
            config.source.wrong(&["apps", &at.to_string(), &key], why)
        };
        let application = application.map_err(wrong)?;
        let settings = AppSettings::new(app.name.clone(), Arc::new(application));
        let level = app.trust_level.unwrap_or(config.sequences.trust_level).0;
        apps.push(AppSettings { partitions: app.partitions, level, ..settings });
    }
    if apps.is_empty() {
        let (name, application) = config::demo();
        info!(app = %name, "no application configured, running the demo");
        let level = config.sequences.trust_level.0;
        apps.push(AppSettings { level, ..AppSettings::new(name, Arc::new(application)) });
    }
    for app in &mut apps {
        app.numbers = match config.sequences.storage {
            config::SequencesIn::System => NumbersIn::System,
            config::SequencesIn::View => NumbersIn::View,
        };
        app.partition.queue = config.http.queue.get();
        let wait = config.http.queue_wait_seconds;
        app.partition.queue_wait = wait.map_or(Duration::ZERO, |seconds| seconds.get());
        let (sequences, sequencer) = (&config.sequences, &mut app.partition.sequencer);
        sequencer.cached_numbers = sequences.cached_numbers;
        sequencer.max_unflushed = sequences.unflushed_numbers;
        sequencer.flush_delay = sequences.flush_delay_seconds.get();
        sequencer.retry_after = sequences.retry_seconds.get();
    }
    Ok(apps)
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use eventlog::TrustLevel;
    use processor::PartitionSettings;

    use super::{VvmConfig, plan};

    const TEXT: &str = "
        [http]
        queue = 301
        queue_wait_seconds = 0.302

        [sequences]
        trust_level = 1
        storage = \"view\"
        cached_numbers = 303
        unflushed_numbers = 304
        flush_delay_seconds = 0.305
        retry_seconds = 0.306

        [[apps]]
        name = \"acme/first\"
        tables = \"first.toml\"
        partitions = 7
        workspaces = {}

        [[apps]]
        name = \"acme/second\"
        tables = \"first.toml\"
        trust_level = 2
        workspaces = {}
    ";

    /// A key that reached no application had no test that failed.
    #[test]
    fn each_key_reaches_the_partitions_of_the_applications() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("first.toml"), "[tables]\n").unwrap();
        let path = folder.path().join("vvm.toml");
        fs::write(&path, TEXT).unwrap();
        let config = VvmConfig::read(Some(&path), &[]).unwrap();
        let target = config.storage.to_target(&config.source).unwrap();
        let (_, apps) = plan(&config, &target).unwrap();
        let [first, second] = &apps[..] else { panic!("{apps:?}") };
        assert_eq!((first.partitions.get(), second.partitions.get()), (7, 10));
        assert_eq!((first.level, second.level), (TrustLevel::One, TrustLevel::Two));
        for app in [first, second] {
            assert_eq!(app.numbers, vvm::NumbersIn::View);
            let PartitionSettings { queue, queue_wait, sequencer, .. } = &app.partition;
            assert_eq!((*queue, *queue_wait), (301, Duration::from_millis(302)));
            assert_eq!(sequencer.cached_numbers, 303);
            assert_eq!(sequencer.max_unflushed.get(), 304);
            assert_eq!(sequencer.flush_delay, Duration::from_millis(305));
            assert_eq!(sequencer.retry_after, Duration::from_millis(306));
        }
        fs::write(&path, "[http]\nqueue_wait_seconds = 0\n").unwrap();
        let config = VvmConfig::read(Some(&path), &[]).unwrap();
        let (_, apps) = plan(&config, &target).unwrap();
        assert_eq!(apps[0].partition.queue_wait, Duration::ZERO, "refused at once");
    }

    #[test]
    fn the_storage_decides_the_default_of_the_seats() {
        let seats = |driver: &str, more: &str| {
            let storage = format!("[storage]\ndriver = \"{driver}\"\n");
            let point = "[storage.cassandra]\ncontact_points = [\"a\"]\n";
            let config = VvmConfig::of_text(&format!("{storage}{point}[cluster]\n{more}"));
            let target = config.storage.to_target(&config.source).unwrap();
            plan(&config, &target).unwrap().0.seats.get()
        };
        for (driver, usual) in [("mem", 1), ("redb", 1), ("cassandra", 16), ("dynamodb", 16)] {
            assert_eq!(seats(driver, ""), usual, "{driver}");
            assert_eq!(seats(driver, "seats = 1"), 1, "{driver}");
        }
        assert_eq!(seats("dynamodb", "seats = 65535"), 65_535);
    }
}
