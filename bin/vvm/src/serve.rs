//! `vvm serve`: a node, from its configuration to its exit code.

use std::{net::SocketAddr, path::PathBuf, pin::pin, process::ExitCode, sync::Arc, time::Duration};

use clock::Clock;
use httpapi::{AdminEndpoint, AdminSettings, HttpApi, HttpApiSettings, HttpLimits, READ_BYTES};
use ielections::{LockFile, Timing};
use istorage::{Metered, StorageDriver, WrappedDriver};
use processor::READ_AHEAD_BYTES;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::Handle;
use tracing::{info, warn};
use vvm::{AppSettings, BadSettings, Builder, NumbersIn, Settings, Vvm};

use crate::{
    cli::ServeArgs,
    config::{self, Config, Override},
    failure::Failure,
    metrics,
    signals::Signals,
    target::{OnDemand, Target},
};

/// Reads the configuration of a node: the file, the environment and the flags.
pub(crate) fn configuration(args: &ServeArgs) -> Result<Config, Failure> {
    let mut overrides = environment();
    if let Some(listen) = args.listen {
        overrides.push(Override::of_flag("--listen", ["http", "listen"], listen));
    }
    if let Some(listen) = args.admin {
        overrides.push(Override::of_flag("--admin", ["admin", "listen"], listen));
    }
    Config::read(args.config.as_deref(), &overrides)
}

/// Returns the address of the admin endpoint, from the defaults and the environment. The file of
/// the node is not known here.
pub(crate) fn admin_listen() -> Result<SocketAddr, Failure> {
    let mut overrides = environment();
    // Variables of other sections may need settings from the file.
    overrides.retain(|one| one.path.first().is_some_and(|section| section == "admin"));
    Ok(Config::read(None, &overrides)?.admin.listen)
}

fn environment() -> Vec<Override> {
    Override::of_environment(std::env::vars_os())
}

/// Checks whether a node could start with a configuration. The storage is not asked.
///
/// Returns the most memory that the node would take, in bytes.
pub(crate) fn check(config: Config) -> Result<usize, Failure> {
    let target = config.storage.to_target(&config.source)?;
    let (settings, apps) = plan(&config, &target)?;
    let connections = config.http.connections.get();
    Ok(most_memory(&config, &target, connections, partitions_led(&settings, &apps)))
}

/// Makes the settings of a node from the configuration, or the error that names the wrong key.
fn plan(config: &Config, target: &Target) -> Result<(Settings, Vec<AppSettings>), Failure> {
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
            BadSettings::AppTwice(name) => {
                let second = config.apps.iter().rposition(|app| app.name == *name);
                twice = second.unwrap_or_default().to_string();
                &["apps", &twice, "name"]
            }
            BadSettings::IdleSlots { .. } => &["node", "slots"],
            BadSettings::LongCalls { .. } => &["node", "call_seconds"],
            BadSettings::ShortLease { .. } => &["node", "lease_seconds"],
        };
        config.source.wrong(key, bad)
    })?;
    Ok((settings, apps))
}

/// Runs a node until it is asked to stop or cannot go on. Services and partitions run on the
/// runtime `requests`.
pub(crate) async fn run(
    config: Config,
    storage: Option<Target>,
    requests: Handle,
) -> Result<ExitCode, Failure> {
    let mut signals = Signals::install().map_err(Failure::runtime)?;
    let clock = Clock::system();
    let provided = provide(config, storage, &clock, requests)?;
    let launched = provided.build().map_err(|bad| Failure::config(bad.to_string()))?.launch();
    let problem = tokio::select! {
        problem = launched.problem() => Some(problem),
        signal = signals.next() => {
            info!(signal, "stops; a second signal stops it at once");
            None
        }
    };
    let mut is_asked = problem.is_none();
    let mut stopping = pin!(launched.shutdown());
    let stopped = loop {
        tokio::select! {
            stopped = stopping.as_mut() => break stopped,
            signal = signals.next() => {
                if is_asked {
                    return Err(Failure::at_once(signal));
                }
                info!(signal, "stops already; another signal stops it at once");
                is_asked = true;
            }
        }
    };
    match (stopped, problem) {
        (Ok(()), None) => Ok(ExitCode::SUCCESS),
        (Err(problem), _) | (Ok(()), Some(problem)) => Err(Failure::node(&problem)),
    }
}

/// Provides everything that a node needs. Nothing runs yet.
fn provide(
    config: Config,
    storage: Option<Target>,
    clock: &Clock,
    requests: Handle,
) -> Result<Builder, Failure> {
    let target = match storage {
        Some(target) => target,
        None => config.storage.to_target(&config.source)?,
    };
    let (settings, apps) = plan(&config, &target)?;
    let advertised = settings.advertised;
    if !target.is_embedded() && advertised.ip().is_loopback() {
        warn!(
            %advertised,
            "nodes on other machines cannot be told from this one, nor its clients where it is: say so in `node.advertised`, unless all nodes are on this machine"
        );
    }
    let (metrics, upkeep) = metrics::install()?;
    let connections = allow_connections(config.http.connections.get());
    let limits = HttpLimits { connections, ..limits(&config) };
    let (listen, admin) = (config.http.listen, config.admin.listen);
    // A storage in memory has no lease that outlives the process.
    let lock = if target == Target::Mem { None } else { lock(&config.node.folder) };
    let partitions = partitions_led(&settings, &apps);
    let memory_mib = most_memory(&config, &target, connections, partitions) >> 20;
    info!(storage = %target, api = %listen, %admin, memory_mib, "a node");
    let driver = driver(&target, clock);
    let for_requests =
        if target.is_embedded() { Arc::clone(&driver) } else { self::driver(&target, clock) };
    let mut builder = Vvm::builder(driver, clock.clone(), settings)
        .with_requests_on(requests, for_requests)
        .with_admin(upkeep)
        .with_admin(AdminEndpoint::new(AdminSettings {
            listen: admin,
            limits: HttpLimits {
                connections: 100,
                head_time: limits.head_time.min(ADMIN_HEAD),
                drain_time: limits.drain_time / 6,
                ..limits
            },
            metrics,
            only_local: !config.admin.allow_unauthenticated,
            version: env!("CARGO_PKG_VERSION"),
        }))
        .with_service(HttpApi::new(HttpApiSettings {
            listen,
            limits,
            command_time: config.http.command_seconds.get(),
            bodies_bytes: config.http.bodies_bytes.get(),
            answers_bytes: config.http.answers_bytes.get(),
            logs: config.http.logs.get(),
            only_local: !config.http.allow_unauthenticated,
        }))
        .with_killer(Arc::new(kill));
    for app in apps {
        builder = builder.with_app(app);
    }
    if let Some(lock) = lock {
        builder = builder.with_comeback(lock);
    }
    Ok(builder)
}

/// Makes a driver that connects at its first use and counts its calls.
fn driver(target: &Target, clock: &Clock) -> Arc<dyn StorageDriver> {
    let driver = OnDemand::new(target.clone(), clock.clone());
    let (name, clock) = (driver.name(), clock.clone());
    let metered = move |storage| Arc::new(Metered::new(storage, name, clock.clone())) as _;
    Arc::new(WrappedDriver::new(Arc::new(driver), metered))
}

fn settings(config: &Config) -> Settings {
    let node = &config.node;
    let lease = Timing::of(node.lease_seconds.get());
    let usual = Settings::new(node.advertised.unwrap_or(config.http.listen));
    Settings {
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
fn check_listens(config: &Config) -> Result<(), Failure> {
    let Config { http, admin, source, .. } = config;
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
        let why = format!("the API listens on {} already: choose another port", http.listen);
        return Err(source.wrong(&["admin", "listen"], why));
    }
    Ok(())
}

/// Checks the advertised address. Other nodes give this address to their clients.
fn check_advertised(
    Config { node, source, .. }: &Config,
    target: &Target,
    advertised: SocketAddr,
) -> Result<(), Failure> {
    if target.is_embedded() {
        return Ok(());
    }
    let unknown = format!("clients of other nodes cannot find this one at {advertised}");
    if advertised.ip().is_unspecified() {
        let why = format!("{unknown}: say where they do");
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
fn check_slots(Config { node, source, .. }: &Config, target: &Target) -> Result<(), Failure> {
    let slots = node.slots.get();
    if slots == 1 || !target.is_embedded() {
        return Ok(());
    }
    let why = format!(
        "with {target} only one node can run, and a node leads one slot: nobody would lead the other {}, and their partitions would answer 503 \
         for ever: set `slots = 1`, or use Cassandra or DynamoDB",
        slots - 1
    );
    Err(source.wrong(&["node", "slots"], why))
}

/// Checks the limits of memory. A body must fit into the memory for all bodies. Logs may take half
/// of the memory for answers, and must leave room for an ordinary answer.
fn check_memory(Config { http, source, .. }: &Config) -> Result<(), Failure> {
    let (body, bodies) = (http.body_bytes.get(), http.bodies_bytes.get());
    if body > bodies {
        let why = format!(
            "all bodies together may have {bodies} bytes (`http.bodies_bytes`): take that or less"
        );
        return Err(source.wrong(&["http", "body_bytes"], why));
    }
    let (logs, answers) = (http.logs.get(), http.answers_bytes.get());
    // A quarter of the memory is reserved for large answers.
    let ordinary = answers - answers / 4;
    let most = (answers / 2).min(ordinary.saturating_sub(READ_BYTES)) / READ_BYTES;
    if logs > most {
        let why = format!(
            "{logs} logs at the same time leave too little of the memory for documents and lists: \
             `http.answers_bytes = {answers}` is for {most} logs, as each takes {READ_BYTES} bytes; \
             take fewer logs, or more bytes"
        );
        return Err(source.wrong(&["http", "logs"], why));
    }
    Ok(())
}

/// Makes the limits of the API. At a stop, requests under way get a little less time than the
/// service itself.
fn limits(Config { http, node, .. }: &Config) -> HttpLimits {
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
fn partitions_led(settings: &Settings, apps: &[AppSettings]) -> usize {
    let slots = settings.slots.get();
    apps.iter().map(|app| u32::from(app.partitions.get()).div_ceil(slots) as usize).sum()
}

/// Returns the most memory that the node may take, in bytes.
///
/// The sum counts bodies and answers as their limits allow, the cache of redb, the connections, the
/// rows that partitions read ahead, and the rest of the program.
fn most_memory(
    Config { http, .. }: &Config,
    target: &Target,
    connections: usize,
    partitions: usize,
) -> usize {
    const CONNECTION: usize = 32 << 10;
    const PROGRAM: usize = 160 << 20;
    let cache = match target {
        Target::Redb(config) => config.cache_bytes,
        Target::Mem | Target::Cassandra(_) | Target::DynamoDb(_) => 0,
    };
    let requests = http.bodies_bytes.get().saturating_add(http.answers_bytes.get());
    let parts = partitions * READ_AHEAD_BYTES + connections * CONNECTION + PROGRAM;
    requests.saturating_add(cache).saturating_add(parts)
}

/// The most time for the head of a request to the admin endpoint: a client of this endpoint sends
/// its request at once.
const ADMIN_HEAD: Duration = Duration::from_secs(5);

/// Files that are no connections: those of the storage, the admin endpoint and the node itself.
const OTHER_FILES: u64 = 250;

/// Raises the limit of open files, and returns the number of connections that this limit allows.
/// Each connection is an open file.
fn allow_connections(connections: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let maximum = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        warn!(%error, "the limit of open files cannot be raised");
    }
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let room = usize::try_from(allowed.saturating_sub(OTHER_FILES)).unwrap_or(usize::MAX).max(1);
    if room < connections {
        warn!(
            connections = room,
            wanted = connections,
            "there may be fewer connections, as there may be fewer open files: raise the limit (ulimit -n, LimitNOFILE)"
        );
    }
    connections.min(room)
}

/// Makes the settings of all applications. If none is configured, the node has the demo
/// application.
fn apps(config: &Config) -> Result<Vec<AppSettings>, Failure> {
    let mut apps: Vec<AppSettings> = Vec::new();
    for (at, app) in config.apps.iter().enumerate() {
        let wrong = |key, why| config.source.wrong(&["apps", &at.to_string(), key], why);
        let application =
            app.application(&config.folder()).map_err(|(key, why)| wrong(key, why))?;
        let settings = AppSettings::new(app.name.clone(), Arc::new(application));
        apps.push(AppSettings { partitions: app.partitions, ..settings });
    }
    if apps.is_empty() {
        let (name, application) = config::demo()?;
        info!(app = %name, "no application is configured: that of the demo is at work");
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

/// Takes the lock file that proves, after a crash, that the former process is gone. Without the
/// lock file the node waits for its own lease.
fn lock(folder: &PathBuf) -> Option<LockFile> {
    let lock = std::fs::create_dir_all(folder).map_err(|error| error.to_string());
    let lock = lock.and_then(|()| LockFile::lock(folder).map_err(|error| error.to_string()));
    lock.map_err(|why| warn!(folder = %folder.display(), why, "after a crash the node will wait for its own lease")).ok()
}

/// Ends the process at once, whatever other threads do.
///
/// Exit handlers and the flush of stdout do not run: either can block for ever, and the process
/// would live on after the end of its lease.
fn kill(why: &str) {
    crate::say(format!("error: killed: {why}"));
    crate::logs::finish_at_once();
    #[expect(clippy::disallowed_methods, reason = "the binary ends the process")]
    signal_hook::low_level::exit(i32::from(Failure::KILLED));
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use std::{
        io::{self, Read, Write},
        process::{ChildStderr, Command, Stdio},
        time::Instant,
    };

    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

    use super::*;

    /// A test sets this variable for the process that it starts. That process runs the same test.
    const IS_KILLED: &str = "VVM_TEST_IS_KILLED";

    fn is_the_killed_process() -> bool {
        std::env::var_os(IS_KILLED).is_some()
    }

    /// Starts a test of this module as a process that is killed, and waits for the end of the
    /// process. Returns the stderr of the process.
    fn killed(test: &str) -> ChildStderr {
        let start = Instant::now();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("serve::tests::{test}"), "--nocapture"])
            .env(IS_KILLED, "yes")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if start.elapsed() > Duration::from_secs(30) {
                child.kill().unwrap();
                panic!("the process was not killed");
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(status.code(), Some(i32::from(Failure::KILLED)));
        child.stderr.take().unwrap()
    }

    /// The killer wrote to stderr before it ended the process. Nobody read stderr, so the write
    /// blocked, and the process lived on after the end of its lease.
    #[test]
    fn a_process_is_killed_although_nobody_reads_what_it_says() {
        if is_the_killed_process() {
            for _ in 0..100_000 {
                crate::say(
                    "a line that nobody reads, of many that together are more than a pipe holds",
                );
            }
            return kill("it leads no more");
        }
        let mut stderr = killed("a_process_is_killed_although_nobody_reads_what_it_says");
        let mut said = Vec::new();
        stderr.read_to_end(&mut said).unwrap();
        assert!(said.len() > 10_000, "it said something: {}", said.len());
    }

    /// The killer called `exit`, which flushes stdout and runs exit handlers. Nobody read the pipe,
    /// so the flush blocked, and the process lived on after the end of its lease.
    #[test]
    fn a_process_is_killed_although_its_exit_would_block() {
        if is_the_killed_process() {
            let mut stdout = io::stdout();
            let flags = fcntl_getfl(&stdout).unwrap();
            fcntl_setfl(&stdout, flags | OFlags::NONBLOCK).unwrap();
            while rustix::io::write(&stdout, &[b'x'; 1024]).is_ok() {}
            fcntl_setfl(&stdout, flags).unwrap();
            // Text without an end of line stays in the buffer until the flush.
            stdout.write_all(b"the rest").unwrap();
            return kill("it leads no more");
        }
        killed("a_process_is_killed_although_its_exit_would_block");
    }
}
