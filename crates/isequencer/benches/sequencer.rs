//! The cost of drawing numbers, compared with the Go implementation on the same machine.

#![allow(clippy::unwrap_used)]

use std::{num::NonZeroUsize, sync::Arc};

use async_trait::async_trait;
use clock::Clock;
use futures::{StreamExt, stream, stream::BoxStream};
use isequencer::{
    LoggedEvent, NumberKey, Offset, Params, SeqId, SeqStorage, Sequencer, Sequences, StorageError,
    WsId, WsKind,
    standard::{self, CRECORD_ID, RECORD_ID, WLOG_OFFSET},
};
use lru::LruCache;
use smallvec::SmallVec;

const KIND: WsKind = WsKind(1);
const ROUNDS: usize = 7;
const MANY: u64 = 100_000;

/// A storage that costs nothing. Each of the `events` in its log draws three numbers in one of
/// 10,000 workspaces.
#[derive(Debug)]
struct Free {
    events: u64,
}

#[async_trait]
impl SeqStorage for Free {
    async fn read_numbers(&self, _: WsId, seqs: &[SeqId]) -> Result<Vec<u64>, StorageError> {
        Ok(vec![0; seqs.len()])
    }

    async fn next_offset(&self) -> Result<Offset, StorageError> {
        Ok(Offset::FIRST)
    }

    async fn write(&self, numbers: &[(NumberKey, u64)], _: Offset) -> Result<(), StorageError> {
        std::hint::black_box(numbers);
        Ok(())
    }

    fn events(&self, from: Offset) -> BoxStream<'_, Result<LoggedEvent, StorageError>> {
        let event = |offset: u64| {
            // The order of the workspaces looks random, and is the same in each run.
            let ws = WsId((offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % 10_000);
            let number = |seq| (NumberKey { ws, seq }, offset);
            let numbers = vec![number(WLOG_OFFSET), number(RECORD_ID), number(CRECORD_ID)];
            Ok(LoggedEvent { offset: Offset::new(offset).unwrap(), numbers })
        };
        stream::iter((from.0..=self.events).map(event)).boxed()
    }
}

fn sequencer(params: impl FnOnce(Params) -> Params, events: u64) -> Sequencer {
    let sequences = Sequences::new().with(KIND, standard::sequences()).unwrap();
    let params = params(Params::new("bench", sequences));
    Sequencer::new(params, Arc::new(Free { events }), Clock::system())
}

/// Runs a command that draws three numbers, in a transaction of its own.
async fn command(sequencer: &mut Sequencer, ws: WsId) {
    sequencer.ready().await.unwrap();
    let mut transaction = sequencer.start().unwrap();
    let mut command = transaction.join(KIND, ws).await.unwrap();
    for seq in [WLOG_OFFSET, RECORD_ID, CRECORD_ID] {
        std::hint::black_box(command.next(seq).unwrap());
    }
    std::hint::black_box(command.keep());
    transaction.flush();
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn print(what: &str, figure: f64, unit: &str, go: &str) {
    println!("{what:<66} {figure:>9.1} {unit:<6} {go:>18}");
}

async fn commands(clock: &Clock) {
    let mut numbers = sequencer(|params| params, 0);
    numbers.ready().await.unwrap();
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = clock.now();
        for _ in 0..1_000_000 {
            command(&mut numbers, WsId(1)).await;
        }
        times.push((clock.now() - start).as_nanos() as f64 / 1e6);
    }
    print("start + 3 next + flush, one workspace", median(times), "ns", "1,372 ns, 256 B");
    let runtime = tokio::runtime::Handle::current();
    let allocated = std::thread::scope(|scope| {
        let count = || {
            allocation_counter::measure(|| {
                runtime.block_on(async {
                    for _ in 0..100_000 {
                        command(&mut numbers, WsId(1)).await;
                    }
                })
            })
        };
        scope.spawn(count).join().unwrap()
    });
    let bytes = allocated.bytes_total as f64 / 1e5;
    print("  of it allocated by the owner", bytes, "bytes", "256 bytes");
}

async fn many_workspaces(clock: &Clock) {
    let mut random = fastrand::Rng::with_seed(1);
    let room = |params| Params { cached_numbers: 3 * MANY as usize, ..params };
    let mut numbers = sequencer(room, 0);
    for ws in 0..MANY {
        command(&mut numbers, WsId(ws)).await;
    }
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = clock.now();
        for _ in 0..500_000 {
            command(&mut numbers, WsId(random.u64(0..MANY))).await;
        }
        times.push((clock.now() - start).as_nanos() as f64 / 5e5);
    }
    print("the same, 100,000 workspaces at random, all cached", median(times), "ns", "4,937 ns");
}

async fn next(clock: &Clock) {
    let mut numbers = sequencer(|params| params, 0);
    numbers.ready().await.unwrap();
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let mut transaction = numbers.start().unwrap();
        let mut command = transaction.join(KIND, WsId(1)).await.unwrap();
        let start = clock.now();
        for _ in 0..5_000_000 {
            std::hint::black_box(command.next(RECORD_ID).unwrap());
        }
        times.push((clock.now() - start).as_nanos() as f64 / 5e6);
    }
    print("next, from the cache", median(times), "ns", "211 ns");
}

/// Measures a command that joins on a workspace outside of the cache, and draws a number.
async fn next_not_cached(clock: &Clock) {
    let mut numbers = sequencer(|params| Params { cached_numbers: 3_000, ..params }, 0);
    numbers.ready().await.unwrap();
    let mut times = Vec::new();
    let mut ws = 0;
    for _ in 0..ROUNDS {
        let start = clock.now();
        for _ in 0..500_000 {
            ws += 1;
            let mut transaction = numbers.start().unwrap();
            let mut command = transaction.join(KIND, WsId(ws)).await.unwrap();
            std::hint::black_box(command.next(RECORD_ID).unwrap());
        }
        times.push((clock.now() - start).as_nanos() as f64 / 5e5);
    }
    print("next, not cached, storage that costs nothing", median(times), "ns", "848 to 1,030 ns");
}

/// How many workspaces the memory is measured with. A table or a list has the most free room just
/// after it has grown.
const FILLED: [u64; 3] = [57_400, 65_600, MANY];

async fn memory() {
    let mut worst: f64 = 0.0;
    for workspaces in FILLED {
        let room = |params| Params { cached_numbers: 3 * workspaces as usize, ..params };
        let mut numbers = sequencer(room, 0);
        numbers.ready().await.unwrap();
        let runtime = tokio::runtime::Handle::current();
        let measured = std::thread::scope(|scope| {
            let fill = || {
                allocation_counter::measure(|| {
                    runtime.block_on(async {
                        // Each place is used for one workspace, and then for another.
                        for ws in 0..2 * workspaces {
                            let mut transaction = numbers.start().unwrap();
                            drop(transaction.join(KIND, WsId(ws)).await.unwrap());
                        }
                    })
                })
            };
            scope.spawn(fill).join().unwrap()
        });
        worst = worst.max(measured.bytes_current as f64 / (3 * workspaces) as f64);
    }
    print("memory, each cached number", worst, "bytes", "116 bytes");
}

/// Measures a cache of the crate `lru` that holds the kind and the numbers of each workspace.
fn memory_of_lru() {
    let mut worst: f64 = 0.0;
    for workspaces in FILLED {
        let room = NonZeroUsize::new(workspaces as usize).unwrap();
        let mut filled = None;
        let measured = allocation_counter::measure(|| {
            let mut cache = LruCache::new(room);
            for ws in 0..2 * workspaces {
                cache.put(WsId(ws), (0_u16, SmallVec::from([ws; 3])));
            }
            filled = Some(cache);
        });
        drop(filled);
        worst = worst.max(measured.bytes_current as f64 / (3 * workspaces) as f64);
    }
    print("the same, if the cache were the crate `lru`", worst, "bytes", "");
}

async fn actualization(clock: &Clock) {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = clock.now();
        let mut numbers = sequencer(|params| params, 1_000_000);
        numbers.ready().await.unwrap();
        times.push((clock.now() - start).as_secs_f64() * 1e3);
        assert_eq!(numbers.monitor().next_offset(), Offset::new(1_000_001));
    }
    let what = "actualization, 1,000,000 events x 3 numbers, 10,000 workspaces";
    print(what, median(times.clone()), "ms", "33,000 ms");
    times.clear();
    for _ in 0..ROUNDS {
        let start = clock.now();
        let bound = |params| Params { max_unflushed: NonZeroUsize::MAX, ..params };
        let mut numbers = sequencer(bound, 1_000_000);
        numbers.ready().await.unwrap();
        times.push((clock.now() - start).as_secs_f64() * 1e3);
        assert_eq!(numbers.monitor().next_offset(), Offset::new(1_000_001));
    }
    print("the same, unflushed numbers without a bound", median(times), "ms", "570 ms");
}

#[tokio::main(worker_threads = 1)]
async fn main() {
    let clock = Clock::system();
    println!("{:<83} {:>18}", "medians of 7 rounds", "Go implementation");
    commands(&clock).await;
    many_workspaces(&clock).await;
    next(&clock).await;
    next_not_cached(&clock).await;
    memory().await;
    memory_of_lru();
    actualization(&clock).await;
}
