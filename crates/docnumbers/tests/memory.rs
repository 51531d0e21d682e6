//! The memory of the counters that a node holds.

#![allow(clippy::unwrap_used)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use docnumbers::{
    Definition, DocNumberRows, FastSeries, FastSettings, Series, WsId,
    clock::{Instant, ManualClock},
    istorage::{
        Call, CallAnswer, Conditional, Error, KeyspaceName, Result, SharedStorage, StorageDriver,
        StorageWrapper, Write, mem::MemDriver,
    },
};

const COUNTERS: u64 = 1_000;
const RANGE: u32 = 10;
const FAR: Instant = Instant::FAR_FUTURE;

/// A storage that keeps copies of the rows, as a database does. It never answers the writes that
/// give counters back. The answers to reservations can be lost.
#[derive(Debug)]
struct Database {
    inner: SharedStorage,
    loses_answers: AtomicBool,
}

impl StorageWrapper for Database {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        let Call::Write(Write::If(pkey, ops)) = call else {
            return call.send(&self.inner, deadline).await;
        };
        if !ops.iter().any(|op| matches!(op, Conditional::Insert { .. })) {
            std::future::pending::<()>().await;
        }
        if self.loses_answers.load(Ordering::Relaxed) {
            return Err(Error::outcome_unknown("the answer was lost"));
        }
        let ops = ops.into_iter().map(copy).collect();
        Call::Write(Write::If(pkey, ops)).send(&self.inner, deadline).await
    }
}

fn copy(op: Conditional) -> Conditional {
    let copy = |bytes: Bytes| Bytes::copy_from_slice(&bytes);
    match op {
        Conditional::Insert { ccols, value, ttl } => {
            Conditional::Insert { ccols: copy(ccols), value: copy(value), ttl }
        }
        Conditional::Swap { ccols, old, new, ttl } => {
            Conditional::Swap { ccols: copy(ccols), old, new: copy(new), ttl }
        }
        delete @ Conditional::Delete { .. } => delete,
    }
}

/// Lets all tasks go on until they wait for the storage or for the time.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

/// A node with long names, which holds as many counters as it may.
struct Node {
    manual: ManualClock,
    database: Arc<Database>,
    series: FastSeries,
}

impl Node {
    async fn new(settings: FastSettings) -> Node {
        let manual = ManualClock::new(1);
        let clock = manual.clock();
        let (driver, name) = (MemDriver::new(clock.clone()), KeyspaceName::new("numbers").unwrap());
        driver.create(&name, FAR).await.unwrap();
        let inner = driver.open(&name, FAR).await.unwrap().unwrap();
        let database = Arc::new(Database { inner, loses_answers: AtomicBool::new(false) });
        let storage = Arc::clone(&database) as SharedStorage;
        let rows = DocNumberRows::new(storage, clock, "n", Duration::from_secs(1));
        let series = Series::new(Definition::daily(&"x".repeat(64), "T")).unwrap();
        let series = FastSeries::open(series, rows, "o".repeat(100), settings, FAR).await.unwrap();
        Node { manual, database, series }
    }

    /// Draws from each counter until it has two ranges, or, if the answer to its last reservation
    /// is lost, the ledger rows of two ranges that are all issued.
    async fn hold(&self, loses_answers: bool) {
        let draw = async |ws, count| drop(self.series.block(WsId(ws), count, FAR).await.unwrap());
        for ws in 0..COUNTERS {
            draw(ws, RANGE).await;
            settle().await;
            if loses_answers {
                self.database.loses_answers.store(true, Ordering::Relaxed);
                draw(ws, RANGE).await;
                let until = self.manual.clock().now() + Duration::from_secs(5);
                while self.manual.clock().now() < until {
                    settle().await;
                    self.manual.advance(Duration::from_millis(500));
                }
                self.database.loses_answers.store(false, Ordering::Relaxed);
            }
        }
    }
}

/// The bytes that a node takes for each counter that it may hold.
fn bytes_of_counter(loses_answers: bool) -> i64 {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let settings = FastSettings {
        counters_held: COUNTERS as usize,
        ..FastSettings::with_range(u64::from(RANGE))
    };
    let Node { series, database, .. } = runtime.block_on(async {
        let node = Node::new(settings).await;
        node.hold(loses_answers).await;
        // The counters of the first day wait to be given back, and those of the next day are held.
        node.manual.advance(Duration::from_secs(24 * 3_600));
        node.hold(loses_answers).await;
        node
    });
    let freed = allocation_counter::measure(|| {
        drop(series);
        runtime.block_on(settle());
    });
    drop(database);
    -freed.bytes_current / COUNTERS as i64
}

#[test]
fn the_counters_of_a_series_take_no_more_memory_than_is_stated() {
    let stated = FastSettings { counters_held: 1, ..FastSettings::default() }.most_memory();
    for loses_answers in [false, true] {
        let bytes = bytes_of_counter(loses_answers);
        println!("answers are lost: {loses_answers}; {bytes} bytes a counter, {stated} are stated");
        // The rest is for the memory that the allocator loses.
        assert!(bytes <= stated as i64 * 3 / 4, "{bytes}");
        assert!(bytes >= stated as i64 / 2, "{bytes}: far more than needed is stated");
    }
}
