//! Commands on every driver, beside their floor: the writes of the same groups, done again by the
//! bare driver. All trust levels are measured in the same rounds.
//!
//! `cargo xtask bench commands` starts the servers and runs this program. Tables go to stdout as
//! Markdown, progress to stderr.

mod trace;

use std::{sync::Arc, time::Duration};

use clap::Parser;
use clock::{Clock, Instant};
use eventlog::TrustLevel;
use istorage::{KeyspaceName, StorageDriver};
use tck::storage::KeyspaceTracker;
use trace::{Recorder, Trace};
use vvm_tests::bench::{
    BenchDatabase, BenchError, PARTITIONS, Sample, ShopLoad, bill, median, millis,
};

/// The allocator of the `vvm` binary.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures commands on every driver, beside the same writes by the bare driver.
#[derive(Clone, Debug, Parser)]
struct Args {
    /// Measures only these drivers: also `cassandra_cluster`, three nodes of Cassandra.
    #[arg(long, value_delimiter = ',', default_value = "mem,redb,cassandra,dynamodb")]
    drivers: Vec<String>,
    /// Measures only these trust levels.
    #[arg(long, value_delimiter = ',', default_value = "0,1,2")]
    levels: Vec<TrustLevel>,
    /// The numbers of workspaces.
    #[arg(long, value_delimiter = ',', default_value = "10,1000")]
    workspaces: Vec<u64>,
    /// The numbers of commands in flight.
    #[arg(long, value_delimiter = ',', default_value = "1,320")]
    in_flight: Vec<usize>,
    /// The rounds of each comparison. The median is shown.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How long commands are sent in a round, in milliseconds.
    #[arg(long, default_value_t = 2_000)]
    span_ms: u64,
    /// The number of threads that run commands, clients and the tasks of the drivers.
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

fn main() -> Result<(), BenchError> {
    let args = Args::parse();
    let mut runtime = match args.threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    if args.threads > 1 {
        runtime.worker_threads(args.threads);
    }
    runtime.enable_all().build()?.block_on(bench(args))
}

async fn bench(args: Args) -> Result<(), BenchError> {
    let clock = Clock::system();
    for driver in &args.drivers {
        let database = BenchDatabase::connect(driver, &clock).await?;
        run(&args, &clock, driver, Arc::clone(&database.driver)).await?;
    }
    Ok(())
}

/// The measurements of a trust level, one for each round, and the writes of the last round.
#[derive(Default)]
struct Measured {
    samples: Vec<Sample>,
    floors: Vec<f64>,
    ratios: Vec<f64>,
    /// The rates as parts of the rates of level 2 in the same rounds.
    of_level_2: Vec<f64>,
    trace: Option<Trace>,
}

async fn run(
    args: &Args,
    clock: &Clock,
    name: &str,
    driver: Arc<dyn StorageDriver>,
) -> Result<(), BenchError> {
    println!("### {name}\n");
    println!(
        "| level | workspaces | in flight | commands/s | of level 2 | p50 | p99 | CPU | floor/s | ratio | conditional rounds | events in a group: p50, p90, most |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for &workspaces in &args.workspaces {
        for &in_flight in &args.in_flight {
            let case = Case { driver: &driver, name, workspaces, in_flight };
            for (level, measured) in args.levels.iter().zip(measure(args, clock, case).await?) {
                print(*level, case, measured)?;
            }
        }
    }
    println!();
    driver.close().await;
    Ok(())
}

fn print(level: TrustLevel, case: Case<'_>, measured: Measured) -> Result<(), BenchError> {
    let none = "there are no rounds";
    let trace = measured.trace.ok_or(none)?;
    let sample = Sample::medians(&measured.samples).ok_or(none)?;
    let (floor, ratio) = median(measured.floors).zip(median(measured.ratios)).ok_or(none)?;
    let of_level_2 = median(measured.of_level_2).map_or(String::new(), |of| format!("{of:.2}"));
    let sizes = trace.sizes();
    let size = |per_cent: usize| sizes[(sizes.len() - 1) * per_cent / 100];
    println!(
        "| {level} | {} | {} | {:.0} | {of_level_2} | {} | {} | {:.1} µs | {floor:.0} | {ratio:.2} | {:.2} | {}, {}, {} |",
        case.workspaces,
        case.in_flight,
        sample.per_second,
        millis(sample.p50),
        millis(sample.p99),
        sample.cpu.as_secs_f64() * 1e6,
        trace.rounds(),
        size(50),
        size(90),
        size(100)
    );
    Ok(())
}

/// The commands that are measured.
#[derive(Clone, Copy)]
struct Case<'d> {
    driver: &'d Arc<dyn StorageDriver>,
    name: &'d str,
    workspaces: u64,
    in_flight: usize,
}

/// Measures all trust levels in each round, one after another. A server is not equally fast in all
/// rounds, so only rates of the same round are compared.
async fn measure(args: &Args, clock: &Clock, case: Case<'_>) -> Result<Vec<Measured>, BenchError> {
    let mut all: Vec<Measured> = args.levels.iter().map(|_| Measured::default()).collect();
    // The first round warms up, because a server compiles while it runs. Each side of a round
    // begins with an empty keyspace.
    for round in 0..=args.rounds {
        let mut rates = Vec::new();
        for (level, measured) in args.levels.iter().zip(&mut all) {
            let (sample, floor, trace) = measure_once(args, clock, case, *level).await?;
            let Case { name, workspaces, in_flight, .. } = case;
            eprintln!(
                "{name} level {level}, {workspaces} workspaces, {in_flight} in flight, round {round}: {:.0}/s, floor {floor:.0}/s",
                sample.per_second
            );
            rates.push((*level, sample.per_second));
            if round > 0 {
                measured.samples.push(sample);
                measured.floors.push(floor);
                measured.ratios.push(sample.per_second / floor);
                measured.trace = Some(trace);
            }
        }
        let level_2 = rates.iter().find(|(level, _)| *level == TrustLevel::Two);
        if let Some((_, level_2)) = level_2.filter(|_| round > 0) {
            for ((_, rate), measured) in rates.iter().zip(&mut all) {
                measured.of_level_2.push(rate / level_2);
            }
        }
    }
    Ok(all)
}

/// Measures a trust level, and its floor. Returns the writes, too.
async fn measure_once(
    args: &Args,
    clock: &Clock,
    Case { driver, workspaces, in_flight, .. }: Case<'_>,
    level: TrustLevel,
) -> Result<(Sample, f64, Trace), BenchError> {
    let keyspaces = KeyspaceTracker::default();
    let driver = keyspaces.track(Arc::clone(driver));
    let span = Duration::from_millis(args.span_ms);
    let name = || KeyspaceName::new(format!("bench_{:x}", clock.random()));
    let bill = bill(3)?;
    let plain =
        ShopLoad::new(&driver, name()?, level, workspaces, |storage| storage, clock).await?;
    let sample = plain.run(in_flight, span, bill.clone()).await?;
    plain.stop().await;
    let recorder = std::sync::Mutex::new(None);
    let record = |storage| {
        let recorded = Recorder::of(storage);
        *recorder.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
            Some(Arc::clone(&recorded));
        recorded as istorage::SharedStorage
    };
    let recorded = ShopLoad::new(&driver, name()?, level, workspaces, record, clock).await?;
    let recorder = recorder.into_inner()?.ok_or("the storage was not wrapped")?;
    recorder.take(u64::from(PARTITIONS));
    recorded.run(in_flight, span, bill).await?;
    recorded.stop().await;
    let trace = recorder.take(u64::from(PARTITIONS));
    let fresh = name()?;
    driver.create(&fresh, Instant::FAR_FUTURE).await?;
    let storage = driver.open(&fresh, Instant::FAR_FUTURE).await?;
    let side_by_side = in_flight > 1;
    let took = trace.replay(&storage.ok_or("it was just made")?, clock, side_by_side).await?;
    let floor = trace.events() as f64 / took.as_secs_f64();
    keyspaces.drop_all(&*driver, clock).await;
    Ok((sample, floor, trace))
}
