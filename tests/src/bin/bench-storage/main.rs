//! Every driver beside its floor: the bare client, or the bare database, which does the same work
//! in the same run.
//!
//! `cargo xtask bench storage` starts the servers and runs this program. Tables go to stdout as
//! Markdown, progress to stderr.

mod crashes;
mod durable_commits;
mod floor_cassandra;
mod floor_dynamodb;
mod floor_redb;
mod measure;
mod report;
mod work;

use std::{sync::Arc, time::Duration};

use clap::Parser;
use clock::{Clock, Instant};
use istorage::{KeyspaceName, StorageDriver, mem::MemDriver};
use istorage_cassandra::{CassandraDriver, Replication};
use istorage_dynamodb::DynamoDbDriver;
use istorage_redb::{RedbConfig, RedbDriver};

use crashes::Crashes;
use durable_commits::DurableCommits;
use measure::Meter;
use vvm_tests::{
    bench::{BenchError, address, scratch},
    servers::{CASSANDRA, DYNAMODB},
};
use work::{Driver, Op, Side, prefill};

/// Measures every driver beside its floor.
#[derive(Clone, Debug, Parser)]
struct Args {
    /// Measures only these drivers.
    #[arg(long, value_delimiter = ',', default_value = "mem,redb,cassandra,dynamodb")]
    drivers: Vec<String>,
    /// The numbers of tasks that call at once.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64")]
    tasks: Vec<usize>,
    /// The rounds of each comparison. The median is shown.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How long each side of a round runs, in milliseconds.
    #[arg(long, default_value_t = 2_000)]
    span_ms: u64,
    /// Measures only operations with this text in their names, and no opening after a crash.
    #[arg(long, default_value = "")]
    only: String,
    #[command(flatten)]
    crashes: Crashes,
}

#[tokio::main]
async fn main() -> Result<(), BenchError> {
    let args = Args::parse();
    let clock = Clock::system();
    if let Some(path) = &args.crashes.write_to {
        return args.crashes.write(path, &clock).await;
    }
    let name = KeyspaceName::new(format!("bench_{:x}", clock.random()))?;
    for driver in &args.drivers {
        match driver.as_str() {
            "mem" => mem(&args, &clock, &name).await?,
            "redb" => redb(&args, &clock, &name).await?,
            "cassandra" => cassandra(&args, &clock, &name).await?,
            "dynamodb" => dynamodb(&args, &clock, &name).await?,
            other => return Err(format!("there is no driver `{other}`").into()),
        }
    }
    Ok(())
}

/// The floor of one driver, and its description in the table.
struct Floor {
    side: Arc<dyn Side>,
    what: &'static str,
}

async fn run(
    args: &Args,
    clock: &Clock,
    driver: &dyn StorageDriver,
    name: &KeyspaceName,
    floor: Option<Floor>,
) -> Result<(), BenchError> {
    let deadline = Instant::FAR_FUTURE;
    driver.create(name, deadline).await?;
    let storage = driver.open(name, deadline).await?.ok_or("the keyspace was just created")?;
    let side: Arc<dyn Side> = Arc::new(Driver { storage, clock: clock.clone() });
    let (what, floor) = floor.map(|floor| (floor.what, floor.side)).unzip();
    prefill(&side).await?;
    if let Some(floor) = &floor {
        prefill(floor).await?;
    }
    let span = Duration::from_millis(args.span_ms);
    let meter = Meter { clock: clock.clone(), rounds: args.rounds, span, next: Arc::default() };
    let mut rows = Vec::new();
    for op in Op::ALL.into_iter().filter(|op| op.to_string().contains(&args.only)) {
        for &tasks in &args.tasks {
            let row = meter.compare(op, tasks, &side, floor.as_ref()).await?;
            let ratio =
                row.ratio.map_or(String::new(), |ratio| format!(", {ratio:.2} of the floor"));
            eprintln!(
                "{} {op}, {tasks} tasks: {:.0}/s{ratio}",
                driver.name(),
                row.driver.per_second
            );
            rows.push(row);
        }
    }
    println!("{}", report::table(driver.name(), what, &rows));
    driver.drop_keyspace(name, deadline).await?;
    driver.close().await;
    Ok(())
}

async fn mem(args: &Args, clock: &Clock, name: &KeyspaceName) -> Result<(), BenchError> {
    // Memory has no floor, so a short measurement is enough. All its rows stay in memory.
    let args = Args { rounds: 1, span_ms: args.span_ms.min(300), ..args.clone() };
    run(&args, clock, &MemDriver::new(clock.clone()), name, None).await
}

async fn redb(args: &Args, clock: &Clock, name: &KeyspaceName) -> Result<(), BenchError> {
    let durable_commits = DurableCommits::record()?;
    let folder = tempfile::tempdir_in(scratch()?)?;
    let config = RedbConfig::new(folder.path().join("driver.redb"));
    let driver = RedbDriver::open(config, clock.clone()).await?;
    let side = Arc::new(floor_redb::RedbFloor::open(&folder.path().join("floor.redb"))?);
    let what = "bare redb, durable transactions that recover as quickly, each with all writes that wait; reads on blocking threads";
    run(args, clock, &driver, name, Some(Floor { side, what })).await?;
    println!("{}", durable_commits.table()?);
    match args.only.is_empty() {
        true => args.crashes.measure(clock).await,
        false => Ok(()),
    }
}

async fn cassandra(args: &Args, clock: &Clock, name: &KeyspaceName) -> Result<(), BenchError> {
    let address = address(CASSANDRA)?;
    let mut config = istorage_cassandra::CassandraConfig::new([address.clone()]);
    config.replication = Some(Replication::UpToThree);
    let driver = CassandraDriver::connect(config, clock.clone(), Instant::FAR_FUTURE).await?;
    let floor =
        floor_cassandra::CassandraFloor::connect(&address, &format!("floor_{name}")).await?;
    let what = "the bare `scylla` crate with its defaults, prepared statements and batches";
    let side = Arc::clone(&floor) as Arc<dyn Side>;
    run(args, clock, &driver, name, Some(Floor { side, what })).await?;
    floor.drop_keyspace().await
}

async fn dynamodb(args: &Args, clock: &Clock, name: &KeyspaceName) -> Result<(), BenchError> {
    let endpoint = address(DYNAMODB)?;
    let config = istorage_dynamodb::DynamoDbConfig::local(&endpoint);
    let driver = DynamoDbDriver::connect(config, clock.clone(), Instant::FAR_FUTURE).await?;
    let floor = floor_dynamodb::DynamoDbFloor::connect(&endpoint, &format!("floor_{name}")).await?;
    let what = "the bare AWS crate with its defaults";
    let side = Arc::clone(&floor) as Arc<dyn Side>;
    run(args, clock, &driver, name, Some(Floor { side, what })).await?;
    floor.drop_table().await
}
