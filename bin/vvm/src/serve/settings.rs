//! The settings of a node, from its configuration, and the checks of them.

use std::{net::SocketAddr, sync::Arc};

use httpapi::{HttpLimits, READ_BYTES};
use ielections::Timing;
use processor::READ_AHEAD_BYTES;
use tracing::{info, warn};
use vvm::{AppSettings, InvalidNodeSettings, NodeSettings, NumbersIn};

use crate::{
    command_error::CommandError,
    config::{self, VvmConfig},
    storage_target::StorageTarget,
};

/// Checks whether a node could start with a configuration. The storage is not asked.
///
/// Returns the most memory that the node would take, in bytes.
pub(crate) fn check(config: VvmConfig) -> Result<usize, CommandError> {
    let target = config.storage.to_target(&config.source)?;
    let (settings, apps) = plan(&config, &target)?;
    let connections = config.http.connections.get();
    Ok(most_memory(&config, &target, connections, partitions_led(&settings, &apps)))
}

/// Makes the settings of a node from the configuration, or the error that names the wrong key.
pub(super) fn plan(
    config: &VvmConfig,
    target: &StorageTarget,
) -> Result<(NodeSettings, Vec<AppSettings>), CommandError> {
    check_listens(config)?;
    check_memory(config)?;
    check_slots(config, target)?;
    let settings = settings(config);
    check_advertised(config, target, settings.advertised)?;
    let apps = apps(config)?;
    let levels = apps.iter().map(|app| app.level);
    let lease = settings.lease_for(levels, target.capabilities().late_write);
    settings.check(&apps).and(lease).map_err(|bad| {
        let twice;
        let key: &[&str] = match &bad {
            InvalidNodeSettings::AppTwice(name) => {
                let second = config.apps.iter().rposition(|app| app.name == *name);
                twice = second.unwrap_or_default().to_string();
                &["apps", &twice, "name"]
            }
            InvalidNodeSettings::IdleSlots { .. } => &["node", "slots"],
            InvalidNodeSettings::LongCalls { .. } => &["node", "call_seconds"],
            InvalidNodeSettings::ShortLease { .. } => &["node", "lease_seconds"],
        };
        config.source.wrong(key, bad)
    })?;
    Ok((settings, apps))
}

fn settings(config: &VvmConfig) -> NodeSettings {
    let node = &config.node;
    let lease = Timing::of(node.lease_seconds.get());
    let usual = NodeSettings::new(node.advertised.unwrap_or(config.http.listen));
    NodeSettings {
        system: config.storage.system_keyspace.clone().unwrap_or(usual.system),
        slots: node.slots,
        lease,
        acquire_within: node.acquire_seconds.map(config::Seconds::get),
        call_timeout: node.call_seconds.map_or(lease.duration / 10, config::Seconds::get),
        stop_within: node.stop_seconds.get(),
        ..usual
    }
}

/// Refuses an address that other machines can reach, unless the configuration allows it: neither
/// the API nor the admin endpoint has authentication.
fn check_listens(config: &VvmConfig) -> Result<(), CommandError> {
    let VvmConfig { http, admin, source, .. } = config;
    for (section, listen, is_allowed) in [
        ("http", http.listen, http.allow_unauthenticated),
        ("admin", admin.listen, admin.allow_unauthenticated),
    ] {
        if listen.ip().is_loopback() {
            continue;
        }
        if !is_allowed {
            let why = format!(
                "other machines can reach {listen}, and the node has no authentication: listen on 127.0.0.1, \
                 or put an authenticating proxy in front and set `{section}.allow_unauthenticated = true`"
            );
            return Err(source.wrong(&[section, "listen"], why));
        }
        warn!(section, %listen, "every client that can reach this address can do everything");
    }
    if http.listen == admin.listen && http.listen.port() != 0 {
        let why = format!("the API already listens on {}: choose another port", http.listen);
        return Err(source.wrong(&["admin", "listen"], why));
    }
    Ok(())
}

/// Checks the advertised address. Other nodes give this address to their clients.
fn check_advertised(
    VvmConfig { node, source, .. }: &VvmConfig,
    target: &StorageTarget,
    advertised: SocketAddr,
) -> Result<(), CommandError> {
    if target.is_embedded() {
        return Ok(());
    }
    let unknown = format!("clients of other nodes cannot reach this node at {advertised}");
    if advertised.ip().is_unspecified() {
        let why = format!("{unknown}: set an address that they can reach");
        return Err(source.wrong(&["node", "advertised"], why));
    }
    if advertised.port() == 0 {
        let key =
            if node.advertised.is_some() { ["node", "advertised"] } else { ["http", "listen"] };
        return Err(source.wrong(&key, format!("{unknown}: choose a port")));
    }
    Ok(())
}

/// Allows only one slot on an embedded storage: one process has the whole storage, and a node leads
/// one slot.
fn check_slots(
    VvmConfig { node, source, .. }: &VvmConfig,
    target: &StorageTarget,
) -> Result<(), CommandError> {
    let slots = node.slots.get();
    if slots == 1 || !target.is_embedded() {
        return Ok(());
    }
    let why = format!(
        "with {target} only one node can run, and a node leads one slot: the other {} would never have a leader, \
         and their partitions would always answer 503: set `slots = 1`, or use Cassandra or DynamoDB",
        slots - 1
    );
    Err(source.wrong(&["node", "slots"], why))
}

/// Checks the limits of memory. A body must fit into the memory for all bodies. Logs may take half
/// of the memory for answers, and must leave room for an ordinary answer.
fn check_memory(VvmConfig { http, source, .. }: &VvmConfig) -> Result<(), CommandError> {
    let (body, bodies) = (http.body_bytes.get(), http.bodies_bytes.get());
    if body > bodies {
        let why = format!(
            "all bodies together may have {bodies} bytes (`http.bodies_bytes`): set this limit to that number or less"
        );
        return Err(source.wrong(&["http", "body_bytes"], why));
    }
    let (logs, answers) = (http.logs.get(), http.answers_bytes.get());
    // A quarter of the memory is reserved for large answers.
    let ordinary = answers - answers / 4;
    let most = (answers / 2).min(ordinary.saturating_sub(READ_BYTES)) / READ_BYTES;
    if logs > most {
        let why = format!(
            "{logs} logs at the same time leave too little memory for documents and lists: each log takes \
             {READ_BYTES} bytes, and `http.answers_bytes = {answers}` is enough for {most} logs; \
             set fewer logs, or more bytes"
        );
        return Err(source.wrong(&["http", "logs"], why));
    }
    Ok(())
}

/// Makes the limits of the API. At a stop, requests under way get a little less time than the
/// service itself.
pub(super) fn limits(VvmConfig { http, node, .. }: &VvmConfig) -> HttpLimits {
    HttpLimits {
        drain_time: node.stop_seconds.get() * 3 / 8,
        connections: http.connections.get(),
        head_time: http.head_seconds.get(),
        body_time: http.body_seconds.get(),
        body_bytes: http.body_bytes.get(),
        answer_time: http.answer_seconds.get(),
        ..HttpLimits::default()
    }
}

/// Returns the maximum number of partitions that the node leads: the partitions of one slot.
pub(super) fn partitions_led(settings: &NodeSettings, apps: &[AppSettings]) -> usize {
    let slots = settings.slots.get();
    apps.iter().map(|app| u32::from(app.partitions.get()).div_ceil(slots) as usize).sum()
}

/// Returns the most memory that the node may take, in bytes.
///
/// The sum counts bodies and answers as their limits allow, the cache of redb, the connections, the
/// rows that partitions read ahead, and the rest of the program.
pub(super) fn most_memory(
    VvmConfig { http, .. }: &VvmConfig,
    target: &StorageTarget,
    connections: usize,
    partitions: usize,
) -> usize {
    const CONNECTION: usize = 32 << 10;
    const PROGRAM: usize = 160 << 20;
    let cache = match target {
        StorageTarget::Redb(config) => config.cache_bytes,
        StorageTarget::Mem | StorageTarget::Cassandra(_) | StorageTarget::DynamoDb(_) => 0,
    };
    let requests = http.bodies_bytes.get().saturating_add(http.answers_bytes.get());
    let parts = partitions * READ_AHEAD_BYTES + connections * CONNECTION + PROGRAM;
    requests.saturating_add(cache).saturating_add(parts)
}

/// Makes the settings of all applications. If none is configured, the node has the demo
/// application.
fn apps(config: &VvmConfig) -> Result<Vec<AppSettings>, CommandError> {
    let mut apps: Vec<AppSettings> = Vec::new();
    for (at, app) in config.apps.iter().enumerate() {
        let wrong = |key, why| config.source.wrong(&["apps", &at.to_string(), key], why);
        let application =
            app.application(&config.source.folder()).map_err(|(key, why)| wrong(key, why))?;
        let settings = AppSettings::new(app.name.clone(), Arc::new(application));
        apps.push(AppSettings { partitions: app.partitions, ..settings });
    }
    if apps.is_empty() {
        let (name, application) = config::demo()?;
        info!(app = %name, "no application configured, running the demo");
        apps.push(AppSettings::new(name, Arc::new(application)));
    }
    for app in &mut apps {
        app.level = config.sequences.trust_level;
        app.numbers = match config.sequences.storage {
            config::SequencesIn::System => NumbersIn::System,
            config::SequencesIn::View => NumbersIn::View,
        };
        app.partition.queue = config.http.queue.get();
        app.partition.sequencer.cached_numbers = config.sequences.cached_numbers;
    }
    Ok(apps)
}
