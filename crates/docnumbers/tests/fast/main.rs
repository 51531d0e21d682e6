//! Fast series over a storage in memory: ranges, the ledger, faults and crashes.

#![allow(clippy::unwrap_used)]

mod faults;
mod found;
mod ledger;
mod limits;
mod periods;
mod simulation;
mod speed;
mod waiting;
mod wrong;

use std::{sync::Arc, time::Duration};

use docnumbers::{
    Definition, DocNumberRows, FastSeries, FastSettings, LedgerEntry, RangeState, Series, WsId,
    clock::{Clock, Instant, ManualClock},
    istorage::{CallKind, Guarded, KeyspaceName, SharedStorage, StorageDriver, mem::MemDriver},
};
use tck::storage::{Fault, Faulty};

/// The time limit of a call.
const CALL: Duration = Duration::from_secs(1);

/// The workspace of most tests.
const WS: WsId = WsId(7);

/// A storage in memory, and its nodes.
struct Database {
    clock: Clock,
    storage: SharedStorage,
}

impl Database {
    async fn new(clock: Clock) -> Database {
        let (driver, name) = (MemDriver::new(clock.clone()), KeyspaceName::new("numbers").unwrap());
        driver.create(&name, clock.now() + CALL).await.unwrap();
        let storage = driver.open(&name, clock.now() + CALL).await.unwrap().unwrap();
        Database { clock, storage }
    }

    /// A storage whose calls have the faults of a script.
    async fn with_faults(
        manual: &ManualClock,
        script: impl FnMut(CallKind) -> Fault + Send + 'static,
    ) -> Database {
        let Database { clock, storage } = Database::new(manual.clock()).await;
        let storage = Arc::new(Faulty::scripted(storage, clock.clone(), script));
        let storage = Arc::new(Guarded::new(storage, clock.clone()));
        Database { clock, storage }
    }

    fn soon(&self) -> Instant {
        self.clock.now() + CALL * 20
    }

    fn rows(&self) -> DocNumberRows {
        let storage = found::with_defect(Arc::clone(&self.storage));
        DocNumberRows::new(storage, self.clock.clone(), "n", CALL)
    }

    /// Starts a node with ranges of `range` counters.
    async fn node(&self, definition: Definition, owner: &str, range: u64) -> FastSeries {
        self.node_with(definition, owner, FastSettings::with_range(range)).await
    }

    async fn node_with(
        &self,
        definition: Definition,
        owner: &str,
        settings: FastSettings,
    ) -> FastSeries {
        let series = Series::new(definition).unwrap();
        FastSeries::open(series, self.rows(), owner, settings, self.soon()).await.unwrap()
    }

    /// Draws `count` numbers one by one, and returns their counters.
    async fn draw(&self, node: &FastSeries, count: usize) -> Vec<u64> {
        let mut drawn = Vec::new();
        for _ in 0..count {
            drawn.push(node.next(WS, self.soon()).await.unwrap().counter);
        }
        drawn
    }

    /// Waits until no reservation of the node is under way.
    async fn settle(&self) {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    /// The ledger of [`WS`], without the times.
    async fn ledger(&self, node: &FastSeries) -> Vec<(u64, u64, String, RangeState)> {
        let now = node.series().day(self.clock.wall()).unwrap();
        let key = node.series().counter_key(now.period(), WS);
        let ledger = self.rows().ledger(&key, 0, 1_000, self.soon()).await.unwrap();
        let entry = |entry: LedgerEntry| (entry.first, entry.until, entry.owner, entry.state);
        ledger.into_iter().map(entry).collect()
    }
}

fn tickets() -> Definition {
    Definition::new("ticket", "T{counter:5}")
}

/// Runs a future while the time of a manual clock passes.
async fn while_time_passes<F: Future>(manual: &ManualClock, future: F) -> F::Output {
    let time = async {
        loop {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            manual.advance(Duration::from_millis(2));
        }
    };
    tokio::select! {
        biased;
        output = future => output,
        () = time => unreachable!("time does not end"),
    }
}
