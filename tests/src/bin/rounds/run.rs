//! A run: a cluster, its clients, and rounds of faults.

mod judge;
mod proofs;
mod recovery;

use std::{
    fs,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use clap::{Args, error::ErrorKind, value_parser};
use clock::Clock;
use fastrand::Rng;
use futures::future::join_all;
use vvm_tests::bench::{BenchError, scratch};

pub(crate) use self::judge::judge_again;
use self::{
    judge::{Ended, judge},
    recovery::Recovery,
};
use crate::{
    bounds::{self, Bounds, Printed, Round},
    clients::{Clients, Shared, Silent},
    cluster::{Cluster, ClusterParts},
    faults::{self, Fault, FaultKind, Setting},
    final_state,
    history::{Line, Part},
    leaders::{self, Watched},
    nemesis::{self, Targets},
    recorder::{Recorder, Recording},
    shim,
    storage::{RunStorage, StorageKind},
};

/// The time for a new cluster, and for its restart at the end.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// The time without a fault after a round. In a long one the nodes even out the partitions.
const CALM: Duration = Duration::from_millis(1_500);
const LONG_CALM: Duration = Duration::from_secs(14);

/// The least time for nodes that are ready to do a request in each workspace.
const PROBE_TIME: Duration = Duration::from_secs(5);

/// The longest time for late writes that a run has room for: that of Cassandra, and no minutes.
const MOST_LATE_WRITE: Duration = Duration::from_secs(30);

/// The workspaces of a run, two in each partition.
const WORKSPACES: u64 = 20;

#[derive(Clone, Debug, Args)]
pub(crate) struct RunArgs {
    /// How long faults are made, in minutes.
    #[arg(long, default_value_t = 3.0, value_parser = minutes)]
    minutes: f64,
    /// Decides the faults. A random one by default.
    #[arg(long)]
    seed: Option<u64>,
    /// The number of nodes. With redb it is always 1.
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u16).range(1..))]
    nodes: u16,
    #[arg(long, default_value_t = StorageKind::Cassandra)]
    storage: StorageKind,
    /// The kinds of faults. All that the storage and this machine can have by default.
    #[arg(long, value_delimiter = ',')]
    faults: Vec<FaultKind>,
    /// The trust level. Level 2 is not possible with DynamoDB.
    #[arg(long, default_value_t = 0, value_parser = value_parser!(u8).range(0..=2))]
    level: u8,
    /// The number of clients.
    #[arg(long, default_value_t = 24, value_parser = value_parser!(u32).range(1..))]
    clients: u32,
    /// The pause of a client between two requests, in milliseconds, at most.
    #[arg(long, default_value_t = 200)]
    pause_ms: u64,
    /// The program of the nodes. The `vvm` beside this program by default.
    #[arg(long)]
    vvm: Option<PathBuf>,
}

/// Reads a time that is longer than nothing.
fn minutes(text: &str) -> Result<f64, String> {
    let minutes = text.parse::<f64>().map_err(|error| error.to_string())?;
    let is_right = minutes > 0.0 && Duration::try_from_secs_f64(minutes * 60.0).is_ok();
    if is_right { Ok(minutes) } else { Err("it must be more than 0".to_owned()) }
}

/// A run with all its parts.
struct Run {
    args: RunArgs,
    seed: u64,
    /// The kinds of faults.
    kinds: Vec<FaultKind>,
    clock: Clock,
    recorder: Arc<Recorder>,
    cluster: Cluster,
    bounds: Bounds,
}

/// Runs rounds of faults, and checks what happened. Returns whether all promises were kept.
pub(crate) async fn run(args: RunArgs) -> Result<bool, BenchError> {
    if let Some(why) = hindrance(&args) {
        wrong_usage(&why);
    }
    let clock = Clock::system();
    let seed = args.seed.unwrap_or_else(|| clock.random() >> 32);
    let (binary, storage) = (binary(&args)?, RunStorage::find(args.storage, &clock)?);
    let folder =
        scratch()?.join(format!("rounds-{}-{seed}-{:x}", args.storage, clock.random() >> 40));
    fs::create_dir_all(&folder)?;
    let count = if args.storage == StorageKind::Redb { 1 } else { usize::from(args.nodes) };
    let shim = shim::compile(&folder)?;
    let setting = Setting {
        storage: args.storage,
        nodes: count,
        has_storage_link: !storage.behind_links(shim.is_some())?.is_empty(),
        has_shim: shim.is_some(),
        has_durable_servers: storage.has_durable_servers(&clock).await?,
    };
    let (kinds, left_out) =
        faults::choose(&args.faults, &setting).unwrap_or_else(|why| wrong_usage(&why));
    println!("seed {seed}, history in {}", folder.display());
    left_out.iter().for_each(|line| println!("{line}"));
    let first = Line::Run { seed, settings: format!("{args:?}") };
    let recorder =
        Arc::new(Recorder::create(&folder.join("history.jsonl"), clock.clone(), &first)?);
    let (level, late_write) = (args.level, late_write(&args));
    let parts = ClusterParts {
        folder: &folder,
        binary,
        count,
        level,
        late_write,
        storage: storage.clone(),
        shim,
    };
    let cluster = Cluster::start(parts, &recorder, &clock).await?;
    let (nodes, servers) = (cluster.nodes.len(), cluster.storage.servers.len());
    let (kinds_of_run, bounds) =
        (kinds.clone(), Bounds { nodes, servers, late_write, ..Bounds::default() });
    let run = Run { args, seed, kinds, clock: clock.clone(), recorder, cluster, bounds };
    let (recording, bounds, watched) = &run.until_end().await?;
    let (folder, kinds) = (&*folder, &*kinds_of_run);
    let ended = Ended { folder, seed, kinds, recording, bounds, watched };
    let is_kept = judge(&clock, &ended, &mut |text| print!("{text}"))?;
    storage.clean(&clock).await?;
    Ok(is_kept)
}

/// The time that the lease of the nodes reserves for late writes.
fn late_write(args: &RunArgs) -> Duration {
    if args.level == 2 { args.storage.late_write() } else { Duration::ZERO }
}

/// Why a run cannot have the level that was asked for. `None` if it can.
fn hindrance(args: &RunArgs) -> Option<String> {
    let late_write = late_write(args);
    (late_write > MOST_LATE_WRITE).then(|| {
        format!(
            "this run cannot have level 2 with {}: there a write may land {late_write:?} late, so \
             the nodes need a lease that lasts longer, and most faults would end before another \
             node takes over",
            args.storage
        )
    })
}

fn wrong_usage(why: &str) -> ! {
    clap::Error::raw(ErrorKind::InvalidValue, format!("{why}\n")).exit()
}

/// Notes that a run broke off before the final state was read. What it recorded until then is still
/// judged.
fn note_end(recorder: &Recorder, bounds: &mut Bounds, error: &BenchError) {
    let why = format!("the run did not come to its end: {error}");
    recorder.add(Line::Unreadable { part: Part::All, why: why.clone() });
    bounds.violations.push(why);
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
    /// Runs everything, and returns what was recorded and measured.
    async fn until_end(mut self) -> Result<(Recording, Bounds, Watched), BenchError> {
        let watched = Mutex::default();
        let ended = self.with_clients(&watched).await;
        let watched = watched.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.bounds.add_usage(watched.usage.clone());
        match ended {
            Ok(()) => {
                self.bounds.check_rounds();
                self.bounds.check_measured();
            }
            Err(error) => {
                note_end(&self.recorder, &mut self.bounds, &error);
                if let Err(error) = self.cluster.heal() {
                    self.bounds.violations.push(format!("the faults cannot be ended: {error}"));
                }
                self.stop().await;
            }
        }
        self.bounds.check_exits(&self.cluster.exits());
        let Run { recorder, cluster, mut bounds, .. } = self;
        cluster.end().await;
        let recorder = Recorder::alone(recorder).await.ok_or("something still records")?;
        recorder.look(|history| bounds.check_gaps(history));
        bounds.violations.iter().for_each(|text| recorder.broken(text.clone()));
        Ok((recorder.end()?, bounds, watched))
    }

    /// Runs the clients, the faults, and the reading of the final state.
    async fn with_clients(&mut self, watched: &Mutex<Watched>) -> Result<(), BenchError> {
        let missing = self.cluster.ready(&self.clock, START_TIMEOUT).await?;
        if !missing.is_empty() {
            return Err(format!("{missing:?} did not start").into());
        }
        let printed = Printed::of_cluster(&self.cluster)?;
        self.bounds.set_printed(printed);
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
        self.prove_links(&shared, &printed).await?;
        let (nodes, recorder) = (self.cluster.nodes.clone(), Arc::clone(&self.recorder));
        let clock = self.clock.clone();
        let during = self.with_faults(shared, &printed);
        leaders::watched(&nodes, &recorder, &clock, watched, during).await
    }

    /// Makes the faults, starts all nodes again, and reads the final state from them.
    async fn with_faults(&mut self, shared: Shared, printed: &Printed) -> Result<(), BenchError> {
        let clients = Clients::start(shared, self.args.clients, 2, self.seed);
        let rounds = self.rounds(&clients, printed).await;
        self.cluster.heal()?;
        let shared = clients.stop().await?;
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

    async fn rounds(&mut self, clients: &Clients, printed: &Printed) -> Result<(), BenchError> {
        let mut rng = Rng::with_seed(self.seed);
        let end = self.clock.now() + Duration::from_secs_f64(self.args.minutes * 60.0);
        let targets = Targets {
            nodes: self.cluster.nodes.len(),
            servers: self.cluster.storage.servers.len(),
            kinds: self.kinds.clone(),
            takeover: printed.takeover,
        };
        self.clock.sleep(self.calm(&mut rng)).await;
        while self.clock.now() < end {
            let faults = nemesis::plan(&mut rng, &targets);
            if !self.round(clients, printed, &faults).await? {
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
    async fn round(
        &mut self,
        clients: &Clients,
        printed: &Printed,
        faults: &[Fault],
    ) -> Result<bool, BenchError> {
        let begin = self.recorder.now();
        let played = self.play(faults).await;
        let (healed, start) = (self.recorder.now(), self.clock.now());
        let takeover = self.bounds.takeover(printed, faults);
        let round = |faults, end| Round { faults, begin, healed, end, takeover };
        let effective = match played {
            Ok(effective) => effective,
            Err(error) => {
                // Any of the faults may have begun, and explains what happens next.
                self.bounds.add_round(round(faults.to_vec(), healed), None);
                return Err(error);
            }
        };
        let within = bounds::ready_within(printed, faults);
        let missing = self.cluster.ready(&self.clock, within).await?;
        let ready_after = self.clock.now() - start;
        let silent = match missing.is_empty() {
            true => {
                let deadline = (start + within).max(self.clock.now() + PROBE_TIME);
                clients.shared.silent(healed, deadline).await
            }
            false => Silent::default(),
        };
        let nodes = self.cluster.nodes.iter().map(|node| node.name.clone()).collect();
        let recovery = Recovery { within, ready_after, missing, silent, nodes };
        let took = recovery.is_good().then(|| self.clock.now() - start);
        self.bounds.add_round(round(effective, self.recorder.now()), took);
        let text = match took {
            Some(took) => format!("all works again after {took:.1?}"),
            None => recovery.text(faults),
        };
        self.recorder.note(text.clone());
        if took.is_none() {
            self.bounds.violations.push(text);
        }
        Ok(took.is_some())
    }

    /// Makes faults. Returns those that had an effect.
    async fn play(&self, faults: &[Fault]) -> Result<Vec<Fault>, BenchError> {
        let note = |text| self.recorder.note(text);
        let played = faults.iter().map(|fault| fault.play(&self.cluster, &self.clock, &note));
        let mut effective = Vec::new();
        for (fault, has_effect) in faults.iter().zip(join_all(played).await) {
            effective.extend(has_effect?.then_some(*fault));
        }
        Ok(effective)
    }

    /// Stops all nodes and starts them again, so that the final state is that of a recovery.
    async fn restart(&mut self) -> Result<(), BenchError> {
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
        let begin = self.recorder.now();
        let left = self.cluster.stop(&self.clock).await;
        self.bounds.stops.push((begin, self.recorder.now()));
        if !left.is_empty() {
            self.bounds.violations.push(format!("{left:?} did not stop in time"));
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::{
        checks,
        history::{Change, Outcome, Request, SentRow, Version, Written},
    };

    #[derive(Debug, Parser)]
    struct Arguments {
        #[command(flatten)]
        run: RunArgs,
    }

    #[test]
    fn a_run_that_can_prove_nothing_is_wrong_usage() {
        let parsed = |line: &str| Arguments::try_parse_from(line.split_whitespace());
        for right in ["rounds", "rounds --minutes 0.5 --clients 1 --level 2 --nodes 1"] {
            assert!(parsed(right).is_ok(), "{right}");
        }
        for wrong in [
            "--minutes 0",
            "--minutes=-1",
            "--minutes NaN",
            "--minutes inf",
            "--clients 0",
            "--level 3",
            "--nodes 0",
            "--faults fire",
        ] {
            assert!(parsed(&format!("rounds {wrong}")).is_err(), "{wrong}");
        }
        assert_eq!(parsed("rounds --minutes 0.5").unwrap().run.minutes, 0.5);
    }

    /// The nodes refused to start, and the run ended as if a promise were broken.
    #[test]
    fn level_2_needs_a_storage_without_minutes_for_late_writes() {
        let parsed = |line: &str| Arguments::try_parse_from(line.split_whitespace()).unwrap().run;
        for level in [0, 1] {
            let args = parsed(&format!("rounds --level {level} --storage dynamodb"));
            assert_eq!((hindrance(&args), late_write(&args)), (None, Duration::ZERO));
        }
        for (storage, millis) in [("redb", 0), ("cassandra", 27_100), ("cassandra_cluster", 27_100)]
        {
            let args = parsed(&format!("rounds --level 2 --storage {storage}"));
            assert_eq!(hindrance(&args), None, "{storage}");
            assert_eq!(late_write(&args), Duration::from_millis(millis), "{storage}");
        }
        let why = hindrance(&parsed("rounds --level 2 --storage dynamodb")).unwrap();
        assert!(why.contains("level 2 with dynamodb"), "{why}");
    }

    #[test]
    fn the_documentation_has_all_options() {
        let text = include_str!("../../../../docs/testing.md");
        let (_, table) =
            text.split_once("| option | default | meaning |\n|---|---|---|\n").unwrap();
        let rows = table.lines().take_while(|line| line.starts_with('|'));
        let documented: Vec<&str> = rows.map(|row| row.split('`').nth(1).unwrap()).collect();
        let command = Arguments::command();
        let options = command.get_arguments().filter_map(|option| option.get_long());
        let mut options: Vec<String> = options.map(|option| format!("--{option}")).collect();
        // `cargo xtask rounds` has this option.
        options.push("--defect".to_owned());
        options.sort_unstable();
        let mut documented = documented;
        documented.sort_unstable();
        assert_eq!(documented, options);
    }

    #[test]
    fn a_run_that_broke_off_has_no_violation_of_a_final_state_that_was_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let first = Line::Run { seed: 1, settings: String::new() };
        let file = folder.path().join("history.jsonl");
        let recorder = Recorder::create(&file, Clock::system(), &first).unwrap();
        let row = SentRow {
            id: 1,
            table: "shop.Article".to_owned(),
            parent: None,
            is_active: None,
            fields: serde_json::json!({"name": "a"}),
        };
        let (change, rows) = (Change::Create, vec![row]);
        let request = Request::Write { id: "c1".into(), has_key: true, place: None, change, rows };
        let version = Version { epoch: 1, offset: 1 };
        let ids = vec![(1, 322_680_131_072)];
        let done = Written { wlog: 1, version, ids, repeated: false, served_by: None };
        recorder.operation(1, recorder.now(), 3, request, Outcome::Written(done));
        let mut bounds = Bounds::default();
        note_end(&recorder, &mut bounds, &"node 2 did not start again".into());
        let recording = recorder.end().unwrap();
        let violations = checks::run_all(&recording.history);
        let checks: Vec<&str> = violations.iter().map(|violation| violation.check).collect();
        assert_eq!(checks, ["readable"], "{violations:?}");
        assert!(bounds.violations[0].ends_with("node 2 did not start again"));
        let kept = crate::history::read(&file).unwrap();
        assert!(!kept.end.is_whole(Part::Log(3)));
    }
}
