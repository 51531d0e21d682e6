//! Batches of two conditional inserts and three puts, as a command writes them.
//!
//! `cargo bench -p istorage-redb --bench batches -- FILE ROWS WORKSPACES SECONDS TASKS…` writes
//! into FILE, which it first makes with so many rows. It prints a row of a table for each number
//! of tasks.

#![allow(clippy::unwrap_used)]

use std::{fs, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use clock::{Clock, Instant};
use futures::future::join_all;
use istorage::{AtomicBatch, Conditional, Key, KeyspaceName, Put, SharedStorage, StorageDriver};
use istorage_redb::{RedbConfig, RedbDriver};

const VALUE: usize = 200;

#[derive(Clone, Copy)]
struct Load {
    rows: u64,
    workspaces: u64,
}

impl Load {
    fn record(self, id: u64) -> Put {
        let ws = id % self.workspaces;
        let key = Key::new([&b"record"[..], &ws.to_be_bytes()].concat(), id.to_be_bytes().to_vec());
        Put { key, value: Bytes::from(vec![1; VALUE]) }
    }

    async fn fill(self, storage: &SharedStorage) {
        for first in (0..self.rows).step_by(1_000) {
            let rows = (first..self.rows.min(first + 1_000)).map(|id| self.record(id)).collect();
            storage.put_batch(rows, Instant::FAR_FUTURE).await.unwrap();
        }
    }

    /// The batch number `n` of a task. No other batch inserts the same rows.
    fn batch(self, task: u64, n: u64, random: u64) -> AtomicBatch {
        let at = Bytes::from([task.to_be_bytes(), n.to_be_bytes()].concat());
        let ws = random % self.workspaces;
        let insert = |pkey: Vec<u8>| {
            let (ccols, value) = (at.clone(), Bytes::from(vec![2; VALUE]));
            (Bytes::from(pkey), Conditional::Insert { ccols, value, ttl: None })
        };
        let log = [&b"log"[..], &ws.to_be_bytes()].concat();
        let of_ws = |place: u64| {
            let per_ws = (self.rows / self.workspaces).max(1);
            self.record(ws + self.workspaces * (random.rotate_left(place as u32 * 20) % per_ws))
        };
        AtomicBatch {
            conditionals: vec![insert(b"partition".to_vec()), insert(log)],
            puts: vec![of_ws(0), of_ws(1), of_ws(2)],
            ..AtomicBatch::default()
        }
    }

    /// Writes batches one after another until `end`. Returns how long each took.
    async fn write(
        self,
        storage: SharedStorage,
        clock: Clock,
        task: u64,
        end: Instant,
    ) -> Vec<Duration> {
        let mut took = Vec::new();
        for n in 0.. {
            let batch = self.batch(task, n, clock.random());
            let begun = clock.now();
            if begun >= end {
                break;
            }
            let outcome = storage.write_atomic(batch, Instant::FAR_FUTURE).await.unwrap();
            assert!(outcome.is_applied());
            took.push(clock.now() - begun);
        }
        took
    }
}

/// The bytes that this process has given to the disk.
fn written() -> u64 {
    let io = fs::read_to_string("/proc/self/io").unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.unwrap().parse().unwrap()
}

async fn run(arguments: &[String]) {
    let [file, rows, workspaces, seconds, tasks @ ..] = arguments else {
        return println!("FILE ROWS WORKSPACES SECONDS TASKS…");
    };
    let number = |text: &String| text.parse::<u64>().unwrap();
    let load = Load { rows: number(rows), workspaces: number(workspaces) };
    let (clock, is_there) = (Clock::system(), Path::new(file).exists());
    let driver = RedbDriver::open(RedbConfig::new(file), clock.clone()).await.unwrap();
    let name = KeyspaceName::new("bench").unwrap();
    driver.create(&name, Instant::FAR_FUTURE).await.unwrap();
    let storage = driver.open(&name, Instant::FAR_FUTURE).await.unwrap().unwrap();
    if !is_there {
        load.fill(&storage).await;
    }
    println!("| tasks | batches/s | p50 | p99 | p99.9 | longest | bytes to the disk a batch |");
    println!("|---:|---:|---:|---:|---:|---:|---:|");
    for tasks in tasks.iter().map(number) {
        // The rows that were written before are not counted.
        Clock::sleep(&clock, Duration::from_secs(2)).await;
        let (before, begun) = (written(), clock.now());
        let end = begun + Duration::from_secs(number(seconds));
        // No two runs insert the same rows.
        let first = clock.random() << 16;
        let writes = (0..tasks).map(|task| {
            tokio::spawn(load.write(Arc::clone(&storage), clock.clone(), first + task, end))
        });
        let took = join_all(writes).await.into_iter().flat_map(Result::unwrap);
        let mut took: Vec<Duration> = took.collect();
        took.sort_unstable();
        let rate = took.len() as f64 / (clock.now() - begun).as_secs_f64();
        let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
        let bytes = (written() - before) / took.len() as u64;
        println!(
            "| {tasks} | {rate:.0} | {:.2} ms | {:.2} ms | {:.2} ms | {:.1} ms | {bytes} |",
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
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build();
    runtime.unwrap().block_on(run(&arguments));
}
