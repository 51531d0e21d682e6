//! Commands on every driver, beside their floor: the writes of the same groups, done again by the
//! bare driver.
//!
//! `cargo xtask bench commands` starts the servers and runs this program. Tables go to stdout as
//! Markdown, progress to stderr.

mod trace;

use std::{sync::Arc, time::Duration};

use clap::Parser;
use clock::{Clock, Instant};
use eventlog::TrustLevel;
use istorage::{KeyspaceName, StorageDriver};
use istorage_tck::KeyspaceTracker;
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
    /// Measures only these drivers.
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
    /// The time for which commands are sent in a round, in milliseconds.
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
        run(&args, &clock, Arc::clone(&database.driver)).await?;
    }
    Ok(())
}

/// The medians of the rounds, and the writes of the last round.
struct Row {
    sample: Sample,
    floor: f64,
    ratio: f64,
    trace: Trace,
}

async fn run(args: &Args, clock: &Clock, driver: Arc<dyn StorageDriver>) -> Result<(), BenchError> {
    println!("### {}\n", driver.name());
    println!(
        "| level | workspaces | in flight | commands/s | p50 | p99 | CPU | floor/s | ratio | conditional rounds | events in a group: p50, p90, most |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for &level in &args.levels {
        for &workspaces in &args.workspaces {
            for &in_flight in &args.in_flight {
                let row = measure(args, clock, &driver, level, workspaces, in_flight).await?;
                let Row { sample, floor, ratio, trace } = row;
                let sizes = trace.sizes();
                let size = |per_cent: usize| sizes[(sizes.len() - 1) * per_cent / 100];
                println!(
                    "| {level} | {workspaces} | {in_flight} | {:.0} | {} | {} | {:.1} µs | {floor:.0} | {ratio:.2} | {:.2} | {}, {}, {} |",
                    sample.per_second,
                    millis(sample.p50),
                    millis(sample.p99),
                    sample.cpu.as_secs_f64() * 1e6,
                    trace.rounds(),
                    size(50),
                    size(90),
                    size(100)
                );
            }
        }
    }
    println!();
    driver.close().await;
    Ok(())
}

async fn measure(
    args: &Args,
    clock: &Clock,
    driver: &Arc<dyn StorageDriver>,
    level: TrustLevel,
    workspaces: u64,
    in_flight: usize,
) -> Result<Row, BenchError> {
    let keyspaces = KeyspaceTracker::default();
    let driver = keyspaces.track(Arc::clone(driver));
    let span = Duration::from_millis(args.span_ms);
    let name = || KeyspaceName::new(format!("bench_{:x}", clock.random()));
    let bill = bill()?;
    let (mut samples, mut floors, mut ratios, mut traces) = (vec![], vec![], vec![], vec![]);
    // The first round warms up, because a server compiles while it runs. Each side of a round
    // begins with an empty keyspace.
    for round in 0..=args.rounds {
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
        recorded.run(in_flight, span, bill.clone()).await?;
        recorded.stop().await;
        let trace = recorder.take(u64::from(PARTITIONS));
        let fresh = name()?;
        driver.create(&fresh, Instant::FAR_FUTURE).await?;
        let storage = driver.open(&fresh, Instant::FAR_FUTURE).await?;
        let side_by_side = in_flight > 1;
        let took = trace.replay(&storage.ok_or("it was just made")?, clock, side_by_side).await?;
        let floor = trace.events() as f64 / took.as_secs_f64();
        eprintln!(
            "{} level {level}, {workspaces} workspaces, {in_flight} in flight, round {round}: {:.0}/s, floor {floor:.0}/s",
            driver.name(),
            sample.per_second
        );
        keyspaces.drop_all(&*driver, clock).await;
        if round == 0 {
            continue;
        }
        samples.push(sample);
        floors.push(floor);
        ratios.push(sample.per_second / floor);
        traces.push(trace);
    }
    let none = "there are no rounds";
    let (trace, sample) = traces.pop().zip(Sample::medians(&samples)).ok_or(none)?;
    let (floor, ratio) = median(floors).zip(median(ratios)).ok_or(none)?;
    Ok(Row { sample, floor, ratio, trace })
}
