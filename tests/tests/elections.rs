//! Elections on every driver: each trial of `ielections::suite` is a test with the name
//! `TTLStorage<driver>::module::case`.
//!
//! The nodes of the trials reach the storage through two drivers. The wall clocks of these drivers
//! are five seconds apart.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use clock::Clock;
use futures::future::join_all;
use ielections::{
    TtlStore,
    suite::{Suite, trials},
};
use istorage::{AppStorageExt, Key, KeyspaceName, SharedStorage, StorageDriver};
use istorage_tck::Subject;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use sysvvm::System;
use tokio::{runtime::Runtime, sync::OnceCell};
use vvm_tests::drivers::{DriverSubject, Drivers};

/// The difference between the wall clocks of the nodes.
const AHEAD_MS: i64 = 5_000;

/// The longest time for making or dropping a keyspace.
const SETUP: Duration = Duration::from_secs(120);

struct Target {
    name: &'static str,
    subject: DriverSubject,
    keyspace: OnceCell<Result<Keyspace, String>>,
}

/// The keyspace of a driver's trials.
struct Keyspace {
    suite: Suite,
    driver: Arc<dyn StorageDriver>,
    name: KeyspaceName,
}

impl Keyspace {
    async fn create(subject: &dyn Subject) -> sysvvm::Result<Keyspace> {
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

    async fn remove(self) -> istorage::Result<()> {
        self.driver.drop_keyspace(&self.name, Clock::system().now() + SETUP).await
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

impl Target {
    fn new(name: &'static str, subject: DriverSubject) -> Target {
        Target { name, subject, keyspace: OnceCell::new() }
    }

    async fn run(&self, trial: &ielections::suite::Trial) -> Result<Completion, Failed> {
        let subject = match &self.subject {
            DriverSubject::Ignored(why) => return Ok(Completion::ignored_with(*why)),
            DriverSubject::Available(subject) => subject,
        };
        let create = async || {
            let created = Keyspace::create(&**subject).await;
            created.map_err(|error| format!("{} cannot be used: {error:?}", self.name))
        };
        let keyspace = self.keyspace.get_or_init(create).await.as_ref()?;
        keyspace.suite.run(trial).await?;
        Ok(Completion::Completed)
    }
}

fn main() -> std::process::ExitCode {
    let mut arguments = Arguments::from_args();
    // Most trials only wait for leases to end.
    arguments.test_threads.get_or_insert(16);
    let runtime = Runtime::new().expect("a runtime needs no more than some threads");
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))
        .expect("the folder for temporary files must be writable");
    let drivers = runtime.block_on(Drivers::open(folder.path())).expect("a new file can be opened");
    let targets = [
        ("TTLStorageMem", drivers.mem),
        ("TTLStorageRedb", drivers.redb),
        ("TTLStorageCas", drivers.cassandra),
        ("TTLStorageCasCluster", drivers.cassandra_cluster),
        ("TTLStorageDyn", drivers.dynamodb),
    ];
    let targets = targets.map(|(name, subject)| Arc::new(Target::new(name, subject)));
    let tests = targets.iter().flat_map(|target| {
        let handle = runtime.handle().clone();
        trials().map(move |trial| {
            let (handle, target) = (handle.clone(), Arc::clone(target));
            let name = format!("{}::{}", target.name, trial.name());
            Trial::ignorable_test(name, move || handle.block_on(target.run(trial)))
        })
    });
    let conclusion = libtest_mimic::run(&arguments, tests.collect());

    let mut code = conclusion.exit_code();
    for target in targets {
        let keyspace = Arc::into_inner(target).and_then(|target| target.keyspace.into_inner());
        if let Some(Ok(keyspace)) = keyspace
            && let Err(error) = runtime.block_on(keyspace.remove())
        {
            eprintln!("a keyspace was left behind: {error:?}");
            code = std::process::ExitCode::FAILURE;
        }
    }
    code
}
