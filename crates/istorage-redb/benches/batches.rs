//! Batches of two conditional inserts and three puts, as a command writes them.
//!
//! `cargo bench -p istorage-redb --bench batches -- FILE ROWS WORKSPACES SECONDS TASKS…` writes
//! into FILE, which it first makes with so many rows. It prints a row of a table for each number
//! of tasks.

#![allow(clippy::unwrap_used)]

use std::{
    ops::Range,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use bytes::Bytes;
use clock::{Clock, Instant};
use futures::future::join_all;
use istorage::{AtomicBatch, Conditional, Key, KeyspaceName, Put, SharedStorage, StorageDriver};
use istorage_redb::{RedbConfig, RedbDriver};

/// The allocator of the node, because the engine makes many small allocations.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

const VALUE: usize = 200;
const WARM_UP: Duration = Duration::from_secs(3);

struct Load {
    rows: u64,
    workspaces: u64,
    /// The last number that was given to a batch. Each is higher than all numbers in the file.
    last: AtomicU64,
}

fn row(kind: &str, of: &[u8], number: u64) -> (Bytes, Bytes) {
    (Bytes::from([kind.as_bytes(), of].concat()), Bytes::from(number.to_be_bytes().to_vec()))
}

impl Load {
    fn record(&self, ws: u64, id: u64) -> Put {
        let (pkey, ccols) = row("record", &ws.to_be_bytes(), id);
        Put { key: Key { pkey, ccols }, value: Bytes::from(vec![1; VALUE]) }
    }

    async fn fill(&self, storage: &SharedStorage) {
        for first in (0..self.rows).step_by(1_000) {
            let ids = first..self.rows.min(first + 1_000);
            let rows = ids.map(|id| self.record(id % self.workspaces, id)).collect();
            storage.put_batch(rows, Instant::FAR_FUTURE).await.unwrap();
        }
    }

    /// The rows of a command: an event in the log of the partition and in that of its workspace,
    /// and three records. All rows are new, and the last ones of their kind.
    fn batch(&self, random: u64) -> AtomicBatch {
        let (number, ws) = (self.last.fetch_add(1, Ordering::Relaxed), random % self.workspaces);
        let insert = |(pkey, ccols)| {
            (pkey, Conditional::Insert { ccols, value: Bytes::from(vec![2; VALUE]), ttl: None })
        };
        let logs = [row("partition", b"", number), row("workspace", &ws.to_be_bytes(), number)];
        AtomicBatch {
            conditionals: logs.map(insert).into(),
            puts: [0, 1, 2].map(|place| self.record(ws, 3 * number + place)).into(),
            ..AtomicBatch::default()
        }
    }

    /// Writes batches one after another. Returns how long those took that began in the time of the
    /// measurement.
    async fn write(
        &self,
        storage: &SharedStorage,
        clock: &Clock,
        measured: Range<Instant>,
    ) -> Vec<Duration> {
        let mut took = Vec::new();
        loop {
            let batch = self.batch(clock.random());
            let begun = clock.now();
            if begun >= measured.end {
                return took;
            }
            let outcome = storage.write_atomic(batch, Instant::FAR_FUTURE).await.unwrap();
            assert!(outcome.is_applied());
            if measured.contains(&begun) {
                took.push(clock.now() - begun);
            }
        }
    }
}

async fn run(arguments: &[String]) {
    let [file, rows, workspaces, seconds, tasks @ ..] = arguments else {
        return println!("FILE ROWS WORKSPACES SECONDS TASKS…");
    };
    let number = |text: &String| text.parse::<u64>().unwrap();
    let (clock, is_there) = (Clock::system(), Path::new(file).exists());
    let last = AtomicU64::new(clock.wall().as_nanos() / 3);
    let load = Load { rows: number(rows), workspaces: number(workspaces), last };
    let driver = RedbDriver::open(RedbConfig::new(file), clock.clone()).await.unwrap();
    let name = KeyspaceName::new("bench").unwrap();
    driver.create(&name, Instant::FAR_FUTURE).await.unwrap();
    let storage = driver.open(&name, Instant::FAR_FUTURE).await.unwrap().unwrap();
    if !is_there {
        load.fill(&storage).await;
    }
    println!("| tasks | batches/s | p50 | p99 | p99.9 | longest |");
    println!("|---:|---:|---:|---:|---:|---:|");
    for tasks in tasks.iter().map(number) {
        // At first the pages of the file come from the disk.
        let begin = clock.now() + WARM_UP;
        let measured = begin..begin + Duration::from_secs(number(seconds));
        let writes = (0..tasks).map(|_| load.write(&storage, &clock, measured.clone()));
        let took = join_all(writes).await;
        let mut took: Vec<Duration> = took.into_iter().flatten().collect();
        took.sort_unstable();
        let rate = took.len() as u64 / number(seconds);
        let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
        println!(
            "| {tasks} | {rate} | {:.2} ms | {:.2} ms | {:.2} ms | {:.1} ms |",
            at(0.5),
            at(0.99),
            at(0.999),
            at(1.0)
        );
    }
    driver.close().await;
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).filter(|text| text != "--bench").collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.unwrap().block_on(run(&arguments));
}
