//! Elections on every driver: each trial of `tck::elections` is a test with the name
//! `TTLStorage<driver>::module::case`.
//!
//! The nodes of the trials reach the storage through two drivers. The wall clocks of these drivers
//! are five seconds apart.

use std::{process::ExitCode, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use clock::Clock;
use futures::future::join_all;
use ielections::TtlStore;
use istorage::{AppStorageExt, Key, KeyspaceName, SharedStorage, StorageDriver};
use sysvvm::System;
use tck::{
    elections::{ElectionsContext, Suite, trials},
    storage::Subject,
    trial::{Conclusion, Trial, TrialRunner},
};
use vvm_tests::{
    drivers::Drivers,
    trials::{DriverRunner, SetupResult, Target, run_trials},
};

/// The number of trials that run at once. Most of them only wait for leases to end. With 16, the
/// three servers of a cluster on two cores answered some calls only after their time limit.
const THREADS: usize = 12;

/// The difference between the wall clocks of the nodes.
const AHEAD_MS: i64 = 5_000;

/// The longest time for making or dropping a keyspace.
const SETUP: Duration = Duration::from_secs(120);

/// The keyspace of a driver's trials.
struct Keyspace {
    suite: Suite,
    driver: Arc<dyn StorageDriver>,
    name: KeyspaceName,
}

#[async_trait]
impl DriverRunner for Keyspace {
    async fn new(subject: Arc<dyn Subject>) -> SetupResult<Keyspace> {
        let clock = Clock::system();
        let name = KeyspaceName::new(format!("elections_{:016x}", clock.random()))?;
        let drivers = [subject.node(0).await?, subject.node(AHEAD_MS).await?];
        let mut nodes: Vec<Arc<dyn TtlStore>> = Vec::new();
        for driver in &drivers {
            let (driver, deadline) = (Arc::clone(driver), clock.now() + SETUP);
            let system = System::open(driver, name.clone(), clock.clone(), deadline).await?;
            nodes.push(Arc::new(system.elections()));
        }
        let [driver, _] = drivers;
        let suite = Suite::new(nodes, clock.clone());
        let storage = driver.open(&name, clock.now() + SETUP).await?;
        if let Some(storage) = storage {
            until_fast(&storage, &clock, suite.timing().call_timeout).await;
        }
        Ok(Keyspace { suite, driver, name })
    }

    async fn remove(self) -> SetupResult<()> {
        Ok(self.driver.drop_keyspace(&self.name, Clock::system().now() + SETUP).await?)
    }
}

#[async_trait]
impl TrialRunner for Keyspace {
    type Context = ElectionsContext;

    async fn run(&self, trial: &Trial<ElectionsContext>) -> Conclusion {
        self.suite.run(trial).await
    }
}

/// Waits until conditional writes are fast, for at most [`SETUP`].
///
/// A server that has just started compiles its code while it answers. Leaders lost their leases of
/// a few seconds while a cluster of three did so.
async fn until_fast(storage: &SharedStorage, clock: &Clock, fast: Duration) {
    const AT_ONCE: usize = 16;
    const IN_A_ROW: usize = 50;
    let (start, mut in_a_row, mut written) = (clock.now(), 0, 0);
    while in_a_row < IN_A_ROW && clock.now() < start + SETUP {
        let began = clock.now();
        let inserts = (0..AT_ONCE).map(|_| {
            written += 1;
            // All rows are in one storage partition, as leases are. No row of the system keyspace
            // has such a key.
            let key = Key::new("warm up", written.to_string());
            storage.insert_if_not_exists(key, Bytes::new(), None, began + SETUP)
        });
        let are_done = join_all(inserts).await.iter().all(Result::is_ok);
        let is_fast = are_done && clock.now() < began + fast;
        in_a_row = if is_fast { in_a_row + 1 } else { 0 };
    }
    eprintln!("{written} conditional writes until they were fast: {:?}", clock.now() - start);
}

fn main() -> ExitCode {
    run_trials(env!("CARGO_TARGET_TMPDIR"), Some(THREADS), targets, trials())
}

fn targets(drivers: Drivers) -> Vec<Target<Keyspace>> {
    vec![
        Target::new("TTLStorageMem", drivers.mem),
        Target::new("TTLStorageRedb", drivers.redb),
        Target::new("TTLStorageCas", drivers.cassandra),
        Target::new("TTLStorageCasCluster", drivers.cassandra_cluster),
        Target::new("TTLStorageDyn", drivers.dynamodb),
    ]
}
