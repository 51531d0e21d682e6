//! `vvm serve`: a node, from its configuration to its exit code.

mod access;
mod configured;
mod files;
mod http;
mod killer;
mod memory;
#[cfg(test)]
#[path = "serve/tests/processes.rs"]
mod processes;
mod reload;
mod settings;
mod starts;
mod supervisor;
mod tls;
mod traces;

use std::{fs, net::SocketAddr, path::Path, pin::pin, process::ExitCode, sync::Arc};

use base::with_causes;
use clock::Clock;
use ctl::{CommandError, StorageTarget, terminal::Signals};
use http_admin::{AdminEndpoint, AdminSettings};
use http_api::HttpApi;
use ielections::{LockError, LockFile};
use istorage::{Metered, StorageDriver, WrappedDriver};
use tokio::runtime::Handle;
use tracing::{info, warn};
use vvm::{Builder, Launched, Vvm};

pub(crate) use self::{
    access::NodeAccess,
    configured::{NODE_CONFIGURATION, configuration},
    files::{OTHER_FILES, peer_connections, room_for_clients},
    http::most_socket_memory,
    memory::most_memory,
    settings::{check, plan, settings_for},
    tls::NodeTls,
    traces::NodeTraces,
};
use self::{
    files::allow_connections,
    http::{admin_limits, api_settings, cluster_settings},
    killer::kill,
    reload::{ReloadSignal, reload_on},
    starts::note_start,
    supervisor::Supervisor,
};

use crate::{
    access_risks::{AccessRisk, access_risks},
    config::VvmConfig,
    lazy_driver::LazyDriver,
    metrics,
};

/// Runs a node until it is asked to stop or cannot go on. Services and partitions run on the
/// runtime `requests`.
pub(crate) async fn run(
    config: VvmConfig,
    storage: Option<StorageTarget>,
    requests: Handle,
) -> Result<ExitCode, CommandError> {
    let signals = Signals::install().map_err(CommandError::runtime)?;
    let reloads = ReloadSignal::install().map_err(CommandError::runtime)?;
    let clock = Clock::system();
    let stop_time = config.cluster.drain_seconds.get() + config.node.stop_seconds.get();
    let supervisor = Supervisor::from_environment(requests.clone(), stop_time);
    let ended = match provide(config, storage, &clock, requests) {
        Ok((provided, tls)) => tokio::select! {
            ended = run_provided(provided, signals, &supervisor) => ended,
            never = reload_on(reloads, &tls, &supervisor, &clock) => match never {},
        },
        Err(error) => Err(error),
    };
    ended.inspect_err(|error| supervisor.note_failure(error))
}

/// Runs a node until a signal or a problem ends it. Meanwhile its supervisor is told of it.
async fn run_provided(
    provided: Builder,
    signals: Signals,
    supervisor: &Supervisor,
) -> Result<ExitCode, CommandError> {
    let launched = provided.build().map_err(|bad| CommandError::config(bad.to_string()))?.launch();
    let node = launched.node().clone();
    tokio::select! {
        ended = run_launched(launched, signals, supervisor) => ended,
        never = supervisor.watch(&node) => match never {},
    }
}

async fn run_launched(
    launched: Launched,
    mut signals: Signals,
    supervisor: &Supervisor,
) -> Result<ExitCode, CommandError> {
    let problem = tokio::select! {
        problem = launched.problem() => Some(problem),
        signal = signals.next() => {
            info!(signal, "stopping in order; a second signal ends the process at once");
            None
        }
    };
    supervisor.note_stopping();
    let mut is_asked = problem.is_none();
    let mut stopping = pin!(launched.shutdown());
    let stopped = loop {
        tokio::select! {
            stopped = stopping.as_mut() => break stopped,
            signal = signals.next() => {
                if is_asked {
                    return Err(CommandError::at_once(signal));
                }
                info!(signal, "already stopping; another signal ends the process at once");
                is_asked = true;
            }
        }
    };
    match (stopped, problem) {
        (Ok(()), None) => Ok(ExitCode::SUCCESS),
        (Err(problem), _) | (Ok(()), Some(problem)) => Err(CommandError::node(&problem)),
    }
}

/// Provides everything that a node needs, and TLS of its ports. Nothing runs yet.
fn provide(
    config: VvmConfig,
    storage: Option<StorageTarget>,
    clock: &Clock,
    requests: Handle,
) -> Result<(Builder, NodeTls), CommandError> {
    let target = match storage {
        Some(target) => target,
        None => config.storage.to_target(&config.source)?,
    };
    let (mut settings, apps) = plan(&config, &target)?;
    let tls = NodeTls::read(&config)?;
    let access = NodeAccess::read(&config, clock)?;
    let traces = NodeTraces::read(&config)?;
    warn_of_risks(&config);
    warn_of_loopback(settings.advertised, &target);
    let (metrics, upkeep) = metrics::install()?;
    let traces = traces.map(|traces| traces.install(&settings));
    let connections = allow_connections(&config, &target);
    let api = api_settings(&config, connections, &tls, access.http());
    let (admin, admin_limits) = (config.admin.listen, admin_limits(&config, api.limits));
    // A storage in memory has no lease that outlives the process.
    let lock = if target == StorageTarget::Mem { None } else { lock(&config.node.folder)? };
    if !target.is_embedded() {
        settings.earlier_starts = note_start(&config.node.folder, clock.wall());
    }
    let memory_mib = most_memory(&config, &target, connections, &apps) >> 20;
    let sockets_mib = most_socket_memory(connections) >> 20;
    info!(storage = %target, api = %api.listen, %admin, memory_mib, sockets_mib, "node starting");
    let driver = driver(&target, clock);
    let for_requests =
        if target.is_embedded() { Arc::clone(&driver) } else { self::driver(&target, clock) };
    let (api, cluster_port) = match cluster_settings(&config.cluster, &tls) {
        None => (HttpApi::new(api), None),
        Some(cluster) => {
            let both = HttpApi::with_cluster(api, cluster);
            let wrong = |why| config.source.wrong(&["cluster", "listen"], why);
            let (api, port) = both.map_err(wrong)?;
            (api, Some(port))
        }
    };
    let admin_storage = Some(Arc::clone(&for_requests));
    let mut builder = Vvm::builder(driver, clock.clone(), settings)
        .with_requests_on(requests, for_requests)
        .with_admin(upkeep)
        .with_admin(AdminEndpoint::new(AdminSettings {
            listen: admin,
            limits: admin_limits,
            metrics,
            // Clients with certificates or tokens know the node by its name. Actions of a browser
            // need the page of the endpoint itself anyway.
            only_local: !config.admin.allow_unauthenticated
                && !config.admin.asks_for_certificates()
                && access.admin().is_none(),
            authenticator: access.admin(),
            storage: admin_storage,
            tls: tls.admin.clone(),
            version: env!("CARGO_PKG_VERSION"),
        }))
        .with_service(api)
        .with_killer(Arc::new(kill));
    if let Some(traces) = traces {
        builder = builder.with_admin(traces);
    }
    if let Some(cluster_port) = cluster_port {
        builder = builder.with_service(cluster_port);
    }
    for app in apps {
        builder = builder.with_app(app);
    }
    if let Some(lock) = lock {
        builder = builder.with_comeback(lock);
    }
    Ok((builder, tls))
}

/// Warns of an address that the other nodes and their clients cannot reach.
fn warn_of_loopback(advertised: SocketAddr, target: &StorageTarget) {
    if !target.is_embedded() && advertised.ip().is_loopback() {
        warn!(
            %advertised,
            "other machines cannot reach the advertised address: set `node.advertised`, unless all nodes are on this machine"
        );
    }
}

/// Warns of settings and files that let others in.
fn warn_of_risks(config: &VvmConfig) {
    for AccessRisk { what, advice, .. } in access_risks(config) {
        warn!(what, advice, "access at risk");
    }
}

/// Makes a driver that connects at its first use and counts its calls.
fn driver(target: &StorageTarget, clock: &Clock) -> Arc<dyn StorageDriver> {
    let driver = LazyDriver::new(target.clone(), clock.clone());
    let (name, clock) = (driver.name(), clock.clone());
    let metered = move |storage| Arc::new(Metered::new(storage, name, clock.clone())) as _;
    Arc::new(WrappedDriver::new(Arc::new(driver), metered))
}

/// Takes the lock file that proves, after a crash, that the former process is gone. Without the
/// lock file the node waits for its own lease.
///
/// # Errors
/// Fails if another process works in the folder.
fn lock(folder: &Path) -> Result<Option<LockFile>, CommandError> {
    let made = fs::create_dir_all(folder).map_err(|error| error.to_string());
    let why = match made.map(|()| LockFile::lock(folder)) {
        Ok(Ok(lock)) => return Ok(Some(lock)),
        Ok(Err(LockError::Held(_))) => {
            return Err(CommandError::unreachable(format!(
                "another process works in the folder {}: wait for its end, or set another `node.folder`",
                folder.display()
            )));
        }
        Ok(Err(error)) => with_causes(&error),
        Err(error) => error,
    };
    warn!(
        folder = %folder.display(),
        error = why,
        "no lock file: after a crash the node waits until its own lease expires"
    );
    Ok(None)
}
