//! How long a partition takes to recover. The time depends on the events after the stored offset,
//! and not on the length of the log.
//!
//! `cargo xtask bench recovery` starts the servers and runs this program. A table goes to stdout as
//! Markdown, progress to stderr.

use std::{future::ready, num::NonZeroU16, sync::Arc, time::Duration};

use clap::Parser;
use clock::{Clock, WallTime};
use eventlog::{
    DrawnNumber, Epoch, Event, EventPlace, LogSettings, LogWriter, Offset, PreparedEvent, Record,
    RecordChange, RecordId, SingleNodeFence, TableKind, TrustLevel, Value, WsId,
};
use isequencer::standard::{FIRST_RECORD_ID, RECORD_ID, WLOG_OFFSET};
use istorage::{KeyspaceName, StorageDriver};
use shop::{ShopDatabase, ShopNodeSettings, TestFence};
use sysvvm::{LastNumber, StoredOffset};
use tck::storage::KeyspaceTracker;
use vvm_tests::bench::{BenchDatabase, BenchError, millis};

/// The allocator of the `vvm` binary.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures how long partitions take to recover.
#[derive(Clone, Debug, Parser)]
struct Args {
    /// Measures only these drivers: mem, redb, cassandra, dynamodb.
    #[arg(long, value_delimiter = ',', default_value = "mem,redb")]
    drivers: Vec<String>,
    /// The numbers of events in the log.
    #[arg(long, value_delimiter = ',', default_value = "1000,1000000")]
    events: Vec<u64>,
    /// The number of events after the stored offset.
    #[arg(long, default_value_t = 1_000)]
    tail: u64,
    /// The number of workspaces of these events.
    #[arg(long, default_value_t = 100)]
    workspaces: u64,
    /// The number of recoveries of each log. The median is shown.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
}

#[tokio::main]
async fn main() -> Result<(), BenchError> {
    let args = Args::parse();
    let clock = Clock::system();
    println!("| driver | events | behind the offset | workspaces | recovered in | most memory |");
    println!("|---|---:|---:|---:|---:|---:|");
    for driver in &args.drivers {
        let database = BenchDatabase::connect(driver, &clock).await?;
        run(&args, &clock, Arc::clone(&database.driver)).await?;
    }
    Ok(())
}

async fn run(args: &Args, clock: &Clock, driver: Arc<dyn StorageDriver>) -> Result<(), BenchError> {
    let keyspaces = KeyspaceTracker::default();
    let driver = keyspaces.track(driver);
    let name = KeyspaceName::new(format!("bench_{:x}", clock.random()))?;
    let partitions = NonZeroU16::new(10).ok_or("ten is not zero")?;
    let shop_db = ShopDatabase::new(Arc::clone(&driver), name, partitions, clock.clone()).await;
    // Write all logs first, and then recover them in turn: if the speed of the machine drifts, the
    // drift is the same for all logs.
    for (partition, events) in (0..).zip(&args.events) {
        write(&shop_db, partition, *events, args).await?;
        eprintln!("{}: {events} events are written", driver.name());
    }
    let mut times = vec![Vec::new(); args.events.len()];
    for round in 0..=args.rounds {
        for (partition, events) in (0..).zip(&args.events) {
            let epoch = 2 + 2 * round as u64;
            set_back(&shop_db, partition, epoch, *events, args).await?;
            let start = clock.now();
            let fence = TestFence::of(epoch + 1);
            let node = shop_db.node_of(partition, fence, ShopNodeSettings::at(TrustLevel::Zero));
            node.ready().await;
            let took = clock.now() - start;
            node.stop().await;
            if round > 0 {
                times[usize::from(partition)].push(took);
            }
        }
    }
    for (events, mut times) in args.events.iter().zip(times) {
        times.sort_unstable();
        println!(
            "| {} | {events} | {} | {} | {} | {} |",
            driver.name(),
            args.tail,
            args.workspaces,
            millis(times[times.len() / 2]),
            most_memory()?
        );
    }
    keyspaces.drop_all(&*driver, clock).await;
    driver.close().await;
    Ok(())
}

/// A workspace of the partition.
fn workspace(partition: u16, n: u64) -> u64 {
    u64::from(partition) + 10 * n
}

/// Writes a log of events that are all applied, with one record each.
async fn write(
    shop_db: &ShopDatabase,
    partition: u16,
    events: u64,
    args: &Args,
) -> Result<(), BenchError> {
    let log = LogWriter::new(
        Arc::clone(&shop_db.app.storage),
        shop_db.clock.clone(),
        Arc::new(SingleNodeFence(Epoch(1))),
        partition,
        LogSettings {
            timeout: Duration::from_secs(30),
            ..LogSettings::new(shop_db.app.entry.partitions)
        },
    );
    let mut group = Vec::new();
    for n in 0..events {
        let (ws, turn) = (workspace(partition, n % args.workspaces), n / args.workspaces);
        let event = event(n + 1, ws, turn + 1, FIRST_RECORD_ID + turn)?;
        group.push(PreparedEvent::new(&event, |_| None));
        if group.len() == 500 || n + 1 == events {
            let outcome = log.write(&group).await;
            outcome.applied?;
            if let Some(error) = outcome.commit_error {
                return Err(error.into());
            }
            group.clear();
        }
    }
    Ok(())
}

fn event(plog: u64, ws: u64, wlog: u64, id: u64) -> Result<Event, BenchError> {
    let place =
        EventPlace { epoch: Epoch(1), plog: Offset(plog), ws: WsId(ws), wlog: Offset(wlog) };
    let text = "a text of sixty bytes, as there are many in documents of shops";
    let record = Record {
        table: "shop.Bill".parse()?,
        kind: TableKind::WDoc,
        id: RecordId(id),
        parent: None,
        is_active: true,
        fields: [("name".parse()?, Value::String(text.to_owned()))].into(),
    };
    Ok(Event {
        changes: vec![RecordChange { replaces: None, record }],
        drawn: vec![
            DrawnNumber { seq: WLOG_OFFSET.0, last: wlog },
            DrawnNumber { seq: RECORD_ID.0, last: id },
        ],
        ..Event::new(place, WallTime::from_millis(1_000 + plog), "sys.CUD".parse()?)
    })
}

/// Sets the stored offset back, as if the last leader had stored no numbers of the tail.
async fn set_back(
    shop_db: &ShopDatabase,
    partition: u16,
    epoch: u64,
    events: u64,
    args: &Args,
) -> Result<(), BenchError> {
    let numbers = shop_db.system.numbers(&shop_db.app.entry);
    let next = events.saturating_sub(args.tail) + 1;
    let done = (next - 1) / args.workspaces;
    let lasts: Vec<LastNumber> = (0..args.workspaces)
        .filter(|_| done > 0)
        .map(|n| LastNumber { ws: workspace(partition, n), seq: 1, number: done })
        .collect();
    let replayed = StoredOffset { partition, epoch, next };
    Ok(numbers.store(&lasts, replayed, || ready(Ok(shop_db.soon()))).await?)
}

/// The most memory that this process ever had.
fn most_memory() -> Result<String, BenchError> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    Ok(most.ok_or("there is no VmHWM")?.trim().to_owned())
}
