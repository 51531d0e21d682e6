//! A run: a cluster, its clients, and rounds of faults.

use std::{
    fs,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use clap::{Args, ValueEnum};
use clock::{Clock, Instant};
use fastrand::Rng;
use futures::future::join_all;
use serde_json::Value;
use shop::http_client::workspace_path;
use tokio::task::JoinSet;
use vvm_tests::bench::{BenchError, scratch};

use crate::{
    api::{self, ANSWER_TIMEOUT, HttpRequest},
    bounds::{self, Bounds, Round},
    checks,
    clients::{Clients, Shared},
    cluster::{Cluster, ClusterParts},
    faults::{Fault, FaultKind},
    final_state,
    history::Line,
    leaders::{self, Owners},
    nemesis::{self, Targets},
    page,
    recorder::{Recorder, Recording},
    report,
    storage::{RunStorage, StorageKind},
};

/// The time for a new cluster, and for its restart at the end.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// The time without a fault after a round. In a long one the nodes even out the partitions.
const CALM: Duration = Duration::from_millis(1_500);
const LONG_CALM: Duration = Duration::from_secs(14);

/// The jump of all clocks that proves the fault.
const PROOF: Duration = Duration::from_secs(60);

/// The workspaces of a run, two in each partition.
const WORKSPACES: u64 = 20;

#[derive(Clone, Debug, Args)]
pub(crate) struct RunArgs {
    /// How long faults are made, in minutes.
    #[arg(long, default_value_t = 3.0)]
    minutes: f64,
    /// Decides the faults and the requests. A random one by default.
    #[arg(long)]
    seed: Option<u64>,
    /// The number of nodes. With redb it is always 1.
    #[arg(long, default_value_t = 3)]
    nodes: usize,
    #[arg(long, default_value_t = StorageKind::Cassandra)]
    storage: StorageKind,
    /// The kinds of faults. All that the storage and this machine can have by default.
    #[arg(long, value_delimiter = ',')]
    faults: Vec<FaultKind>,
    /// The trust level.
    #[arg(long, default_value_t = 0)]
    level: u8,
    /// The number of clients.
    #[arg(long, default_value_t = 24)]
    clients: u32,
    /// The pause of a client between two requests, in milliseconds, at most.
    #[arg(long, default_value_t = 200)]
    pause_ms: u64,
    /// The program of the nodes. The `vvm` beside this program by default.
    #[arg(long)]
    vvm: Option<PathBuf>,
}

/// A run with all its parts.
struct Run {
    args: RunArgs,
    seed: u64,
    clock: Clock,
    recorder: Arc<Recorder>,
    cluster: Cluster,
    bounds: Bounds,
    /// The ends that come later are those of the restart.
    are_exits_checked: bool,
}

/// Runs rounds of faults, and checks what happened. Returns whether all promises were kept.
pub(crate) async fn run(args: RunArgs) -> Result<bool, BenchError> {
    let clock = Clock::system();
    let seed = args.seed.unwrap_or_else(|| clock.random() >> 32);
    let folder =
        scratch()?.join(format!("rounds-{}-{seed}-{:x}", args.storage, clock.random() >> 40));
    fs::create_dir_all(&folder)?;
    println!("seed {seed}, history in {}", folder.display());
    let first = Line::Run { seed, settings: format!("{args:?}") };
    let recorder =
        Arc::new(Recorder::create(&folder.join("history.jsonl"), clock.clone(), &first)?);
    let storage = RunStorage::find(args.storage, &clock)?;
    let parts = ClusterParts {
        folder: &folder,
        binary: binary(&args)?,
        count: if args.storage == StorageKind::Redb { 1 } else { args.nodes.max(1) },
        level: args.level,
        storage: storage.clone(),
    };
    let cluster = Cluster::start(parts, &recorder, &clock).await?;
    let bounds = Bounds::default();
    let mut run = Run {
        args,
        seed,
        clock: clock.clone(),
        recorder,
        cluster,
        bounds,
        are_exits_checked: false,
    };
    let owners = Arc::default();
    if let Err(error) = run.with_clients(&owners).await {
        // What was recorded is judged all the same.
        run.bounds.violations.push(format!("the run did not come to its end: {error}"));
        run.cluster.heal()?;
        run.check_exits();
        run.stop().await;
    }
    let Run { recorder, cluster, mut bounds, .. } = run;
    cluster.end().await;
    let recorder = Arc::into_inner(recorder).ok_or("something still records")?;
    recorder.look(|history| bounds.check_gaps(history));
    bounds.violations.iter().for_each(|text| recorder.broken(text.clone()));
    let recording = recorder.end()?;
    let Recording { history, notes } = &recording;
    let violations = checks::run_all(history);
    let text = report::text(seed, history, &bounds, &violations);
    print!("{text}");
    fs::write(folder.join("report.txt"), &text)?;
    let owners = owners.lock().map(|owners| owners.clone()).unwrap_or_default();
    fs::write(folder.join("timeline.html"), page::html(seed, history, notes, &owners, &text))?;
    storage.clean(&clock).await?;
    Ok(violations.is_empty() && bounds.violations.is_empty())
}

fn binary(args: &RunArgs) -> Result<PathBuf, BenchError> {
    let beside = || {
        let this = std::env::current_exe().ok()?;
        Some(this.parent()?.join("vvm"))
    };
    let binary = args.vvm.clone().or_else(beside).ok_or("this program lies in no folder")?;
    match binary.is_file() {
        true => Ok(fs::canonicalize(binary)?),
        false => Err(format!("{} is missing: build vvm-cli first", binary.display()).into()),
    }
}

impl Run {
    /// Runs the clients, the faults, and the reading of the final state.
    async fn with_clients(&mut self, owners: &Arc<Mutex<Vec<Owners>>>) -> Result<(), BenchError> {
        let missing = self.cluster.ready(&self.clock, START_TIMEOUT).await?;
        if !missing.is_empty() {
            return Err(format!("{missing:?} did not start").into());
        }
        let links = self.cluster.nodes.iter().map(|node| node.client_link.address).collect();
        let shared = Shared::new(
            Arc::clone(&self.recorder),
            self.clock.clone(),
            links,
            WORKSPACES,
            self.args.pause_ms,
        );
        shared.create_workspaces(START_TIMEOUT).await?;
        self.prove_clocks(&shared).await?;
        let mut watch = JoinSet::new();
        watch.spawn(leaders::watch(
            self.cluster.nodes.clone(),
            Arc::clone(&self.recorder),
            self.clock.clone(),
            Arc::clone(owners),
        ));
        let clients = Clients::start(shared, self.args.clients, 2, self.seed);
        let rounds = self.rounds(&clients).await;
        self.cluster.heal()?;
        let shared = clients.stop().await?;
        watch.shutdown().await;
        rounds?;
        self.restart().await?;
        for ws in &shared.workspaces {
            shared.create_document(*ws, START_TIMEOUT).await?;
        }
        let apis: Vec<_> = self.cluster.nodes.iter().map(|node| node.api).collect();
        final_state::read(&self.recorder, &self.clock, &apis, &shared.workspaces).await;
        drop(shared);
        self.stop().await;
        Ok(())
    }

    /// Fails if a jump of the clocks does not show in an event: then the fault would have no
    /// effect, and nothing would be proved by it. The events of this workspace are late from now
    /// on.
    async fn prove_clocks(&self, shared: &Shared) -> Result<(), BenchError> {
        if !self.cluster.has_shim {
            return Ok(());
        }
        for node in &self.cluster.nodes {
            node.faults.set_clock(PROOF, true)?;
        }
        shared.create_document(WORKSPACES, START_TIMEOUT).await?;
        self.cluster.heal()?;
        let request = HttpRequest::get(format!("{}/wlog?from=2", workspace_path(WORKSPACES)));
        let api = self.cluster.nodes[0].api;
        let log = api::send(&self.clock, api, &request, ANSWER_TIMEOUT).await?.body;
        let event: Value = serde_json::from_str(log.lines().next().unwrap_or_default())?;
        let time = Duration::from_micros(event["timeMicros"].as_u64().unwrap_or(0));
        let ahead = time.saturating_sub(Duration::from_millis(self.clock.wall().as_millis()));
        match ahead > PROOF / 2 {
            true => Ok(()),
            false => Err(format!("a clock that jumps by {PROOF:?} has no effect: {log}").into()),
        }
    }

    async fn rounds(&mut self, clients: &Clients) -> Result<(), BenchError> {
        let mut rng = Rng::with_seed(self.seed);
        let end = self.clock.now() + Duration::from_secs_f64(self.args.minutes * 60.0);
        let targets = self.targets();
        self.clock.sleep(self.calm(&mut rng)).await;
        while self.clock.now() < end {
            let faults = nemesis::plan(&mut rng, &targets);
            if !self.round(clients, &faults).await? {
                break;
            }
            self.clock.sleep(self.calm(&mut rng)).await;
        }
        Ok(())
    }

    /// The time until the next round.
    fn calm(&self, rng: &mut Rng) -> Duration {
        let is_long = self.cluster.nodes.len() > 1 && rng.u32(0..100) < 45;
        if is_long { LONG_CALM } else { CALM }
    }

    /// Makes faults, and waits until everything works again. Returns whether it does.
    async fn round(&mut self, clients: &Clients, faults: &[Fault]) -> Result<bool, BenchError> {
        let begin = self.recorder.now();
        let recorder = Arc::clone(&self.recorder);
        let note = move |text| recorder.note(text);
        let takeover = bounds::takeover(&self.cluster, faults);
        let played = faults.iter().map(|fault| fault.play(&self.cluster, &self.clock, &note));
        let mut effective = Vec::new();
        for (fault, has_effect) in faults.iter().zip(join_all(played).await) {
            effective.extend(has_effect?.then_some(*fault));
        }
        self.bounds.measure(&self.cluster);
        let (healed, start) = (self.recorder.now(), self.clock.now());
        let within = bounds::ready_within(&self.cluster, faults);
        let deadline = start + within;
        let missing = self.cluster.ready(&self.clock, within).await?;
        let idle = self.idle_workspaces(clients, healed, deadline).await;
        let works = missing.is_empty() && idle.is_empty();
        let took = works.then(|| self.clock.now() - start);
        let round = Round { faults: effective, begin, end: self.recorder.now(), takeover };
        self.bounds.add_round(round, took);
        let text = match took {
            Some(took) => format!("all works again after {took:.1?}"),
            None => {
                let what: Vec<String> = faults.iter().map(ToString::to_string).collect();
                format!(
                    "{within:.1?} after {what:?}, nodes {missing:?} are not ready, and workspaces \
                     {idle:?} have no command done"
                )
            }
        };
        self.recorder.note(text.clone());
        if !works {
            self.bounds.violations.push(text);
        }
        Ok(works)
    }

    /// Waits until a command was done in each workspace. Returns those without one.
    async fn idle_workspaces(&self, clients: &Clients, since: u64, deadline: Instant) -> Vec<u64> {
        loop {
            let done = clients.shared.last_done();
            let idle: Vec<u64> =
                done.into_iter().filter(|(_, at)| *at < since).map(|(ws, _)| ws).collect();
            if idle.is_empty() || self.clock.now() >= deadline {
                return idle;
            }
            self.clock.sleep(Duration::from_millis(20)).await;
        }
    }

    /// Finds ends of processes under the faults that no fault explains.
    fn check_exits(&mut self) {
        if !std::mem::replace(&mut self.are_exits_checked, true) {
            self.bounds.check_exits(&self.cluster.exits());
        }
    }

    /// Stops all nodes and starts them again, so that the final state is that of a recovery.
    async fn restart(&mut self) -> Result<(), BenchError> {
        self.check_exits();
        self.stop().await;
        for node in &self.cluster.nodes {
            node.stays_down.store(false, std::sync::atomic::Ordering::SeqCst);
        }
        let missing = self.cluster.ready(&self.clock, START_TIMEOUT).await?;
        match missing.is_empty() {
            true => Ok(()),
            false => Err(format!("{missing:?} did not start again").into()),
        }
    }

    /// Stops all nodes in order.
    async fn stop(&mut self) {
        let before = self.cluster.exits().len();
        let left = self.cluster.stop(&self.clock).await;
        if !left.is_empty() {
            self.bounds.violations.push(format!("{left:?} did not stop in time"));
        }
        for exit in self.cluster.exits().iter().skip(before).filter(|exit| !exit.status.success()) {
            let text = format!("{} ended with {} when it was stopped", exit.node, exit.status);
            self.bounds.violations.push(text);
        }
    }

    /// The faults that the storage and the machine can have.
    fn targets(&self) -> Targets {
        let (storage, has_shim) = (&self.cluster.storage, self.cluster.has_shim);
        let is_redb = storage.kind == StorageKind::Redb;
        let has_link = self.cluster.nodes.iter().any(|node| node.storage_link.is_some());
        let can = |kind: &FaultKind| match kind {
            FaultKind::Kill | FaultKind::Pause | FaultKind::Stop | FaultKind::ClientLink => true,
            FaultKind::StepDown | FaultKind::Drain | FaultKind::PeerLink => !is_redb,
            FaultKind::StorageLink => has_link,
            // DynamoDB Local keeps its tables in its memory.
            FaultKind::KillServer => {
                matches!(storage.kind, StorageKind::Cassandra | StorageKind::CassandraCluster)
            }
            FaultKind::PauseServer => !is_redb,
            FaultKind::FullDisk => is_redb && has_shim,
            FaultKind::Clock => has_shim,
        };
        let asked = match self.args.faults.is_empty() {
            true => FaultKind::value_variants().to_vec(),
            false => self.args.faults.clone(),
        };
        let kinds = asked.into_iter().filter(can).collect();
        Targets { nodes: self.cluster.nodes.len(), servers: storage.servers.len(), kinds }
    }
}
