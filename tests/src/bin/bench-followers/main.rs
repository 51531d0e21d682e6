//! Clients that follow a log: how fast each event comes to them, and what a client costs the node.
//!
//! `cargo xtask bench followers` runs this program. A table goes to stdout as Markdown, progress to
//! stderr. The time of an event begins when its command is sent, so it includes the write. The time
//! of the command itself is shown beside it.

mod follower;
mod writers;

use std::{path::PathBuf, str::FromStr, time::Duration};

use clap::Parser;
use clock::Clock;
use rustix::process::Signal;
use tokio::task::JoinSet;
use vvm_tests::bench::{BenchBinary, BenchError, median, millis};

use self::{
    follower::{BenchFollower, Delivered},
    writers::Writers,
};

/// Measures clients that follow a log.
#[derive(Clone, Debug, Parser)]
struct Args {
    /// The `vvm` program. The default is the one beside this program.
    #[arg(long)]
    vvm: Option<PathBuf>,
    /// The numbers of followers, each with a number of events in a second.
    #[arg(long, value_delimiter = ',', default_value = "1000:20,20:1000")]
    loads: Vec<Load>,
    /// The storages: `memory` and `redb`.
    #[arg(long, value_delimiter = ',', default_value = "memory,redb")]
    storages: Vec<String>,
    /// The rounds, each with a node of its own. The median of each figure is shown.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How long events are written in a round, in seconds.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
}

#[derive(Clone, Copy, Debug)]
struct Load {
    followers: usize,
    per_second: u32,
}

impl FromStr for Load {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<Load, BenchError> {
        let (followers, per_second) = text.split_once(':').ok_or("a load is `followers:events`")?;
        Ok(Load { followers: followers.parse()?, per_second: per_second.parse()? })
    }
}

/// The figures of a round.
#[derive(Clone, Copy)]
struct Round {
    p50: Duration,
    p99: Duration,
    longest: Duration,
    /// The 99th percentile of the answers to the commands.
    answered: Duration,
    /// Events that a follower did not get, and events that came twice or in a wrong order.
    wrong: usize,
    /// The memory of the node for each follower, in KiB, when all wait.
    idle_kib: f64,
    /// The memory of the node at the end, in MiB. It includes the events in memory.
    node_mib: f64,
    threads: usize,
    /// The part of a core that the node takes.
    cores: f64,
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), BenchError> {
    let args = Args::parse();
    let clock = Clock::system();
    let path = match &args.vvm {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("vvm"),
    };
    let binary = BenchBinary::new(path, clock.clone());
    println!(
        "| storage | followers | events/s | p50 | p99 | longest | answers, p99 | lost or doubled | \
         memory of a follower | of the node | threads | cores |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for storage in &args.storages {
        for &load in &args.loads {
            let mut rounds = Vec::new();
            for number in 0..args.rounds {
                eprintln!("{storage}, {load:?}, round {}", number + 1);
                rounds.push(round(&args, &binary, &clock, storage, load).await?);
            }
            let Load { followers, per_second } = load;
            let time = |figure: fn(&Round) -> Duration| {
                let figures = rounds.iter().map(|round| figure(round).as_secs_f64());
                millis(Duration::from_secs_f64(median(figures.collect()).unwrap_or_default()))
            };
            let middle = |figure: fn(&Round) -> f64| {
                median(rounds.iter().map(figure).collect()).unwrap_or_default()
            };
            let [p50, p99] = [time(|it| it.p50), time(|it| it.p99)];
            let [longest, answered] = [time(|it| it.longest), time(|it| it.answered)];
            let wrong: usize = rounds.iter().map(|round| round.wrong).sum();
            let [idle, node] = [middle(|it| it.idle_kib), middle(|it| it.node_mib)];
            let [threads, cores] = [middle(|it| it.threads as f64), middle(|it| it.cores)];
            println!(
                "| {storage} | {followers} | {per_second} | {p50} | {p99} | {longest} | {answered} | \
                 {wrong} | {idle:.1} KiB | {node:.0} MiB | {threads} | {cores:.2} |"
            );
        }
    }
    Ok(())
}

async fn round(
    args: &Args,
    binary: &BenchBinary,
    clock: &Clock,
    storage: &str,
    Load { followers, per_second }: Load,
) -> Result<Round, BenchError> {
    /// How long the node gets to come to rest.
    const REST: Duration = Duration::from_secs(1);
    let folder = tempfile::tempdir()?;
    let command = match storage {
        "memory" => "dev",
        "redb" => "serve",
        other => return Err(format!("there is no storage `{other}`").into()),
    };
    let node = binary.start(&[command], folder.path())?;
    let mut writers = Writers::connect(node.api(), clock).await?;
    // The buffers of the log and of the storage are no memory of followers.
    writers.write(per_second, Duration::from_secs(2)).await?;
    let before = node.memory()?;
    let mut running = JoinSet::new();
    for _ in 0..followers {
        let follower = BenchFollower::open(node.api(), clock).await?;
        running.spawn(follower.run());
    }
    clock.sleep(REST).await;
    let idle = node.memory()?;
    let cpu = node.cpu()?;
    let span = Duration::from_secs(args.seconds);
    let sent = writers.write(per_second, span).await?;
    let cores = (node.cpu()? - cpu).as_secs_f64() / span.as_secs_f64();
    let (busy, threads) = (node.memory()?, node.threads()?);
    clock.sleep(REST).await;
    node.end(Signal::TERM)?;
    let mut delivered = Vec::new();
    while let Some(follower) = running.join_next().await {
        delivered.push(follower??);
    }
    let wrong = delivered.iter().map(|follower| follower.wrong(&sent)).sum();
    let mut times: Vec<_> =
        delivered.iter().flat_map(|follower: &Delivered| follower.times(&sent)).collect();
    times.sort_unstable();
    let mut answers: Vec<_> = sent.values().map(|(began, ended)| *ended - *began).collect();
    answers.sort_unstable();
    let none = "no event came";
    Ok(Round {
        p50: at(&times, 500).ok_or(none)?,
        p99: at(&times, 990).ok_or(none)?,
        longest: at(&times, 1_000).ok_or(none)?,
        answered: at(&answers, 990).ok_or(none)?,
        wrong,
        idle_kib: idle.saturating_sub(before) as f64 / 1024.0 / followers as f64,
        node_mib: busy as f64 / f64::from(1 << 20),
        threads,
        cores,
    })
}

/// The time at a part of sorted times, in thousandths.
fn at(times: &[Duration], per_mille: usize) -> Option<Duration> {
    times.get((times.len() * per_mille / 1_000).min(times.len().checked_sub(1)?)).copied()
}
