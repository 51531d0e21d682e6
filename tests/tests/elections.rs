//! Elections on every driver: each of the trials of `ielections::suite` is a test, as `TTLStorage<driver>::module::case`.
//!
//! The nodes of the trials reach the storage by two drivers, whose calendars are five seconds apart.

use std::sync::Arc;

use clock::Clock;
use ielections::{
    TtlStore,
    suite::{Suite, trials},
};
use istorage::{KeyspaceName, StorageDriver};
use istorage_tck::Subject;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use sysvvm::System;
use tokio::{runtime::Runtime, sync::OnceCell};
use vvm_tests::reach::{Drivers, Reach};

/// How far the calendars of the nodes are apart.
const AHEAD_MS: i64 = 5_000;

/// How long it may take to make a keyspace or to drop it.
const SETUP: std::time::Duration = std::time::Duration::from_secs(120);

struct Target {
    name: &'static str,
    reach: Reach,
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
        Ok(Keyspace { suite: Suite::new(nodes, clock), driver, name })
    }

    async fn remove(self) -> istorage::Result<()> {
        self.driver.drop_keyspace(&self.name, Clock::system().now() + SETUP).await
    }
}

impl Target {
    fn new(name: &'static str, reach: Reach) -> Target {
        Target { name, reach, keyspace: OnceCell::new() }
    }

    async fn run(&self, trial: &ielections::suite::Trial) -> Result<Completion, Failed> {
        let subject = match &self.reach {
            Reach::NotAskedFor(why) => return Ok(Completion::ignored_with(*why)),
            Reach::Subject(subject) => subject,
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
    // They mostly wait for leases to end.
    arguments.test_threads.get_or_insert(16);
    let runtime = Runtime::new().expect("a runtime needs no more than some threads");
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))
        .expect("the folder for temporary files must be writable");
    let drivers =
        runtime.block_on(Drivers::reach(folder.path())).expect("a new file can be opened");
    let targets = [
        ("TTLStorageMem", drivers.mem),
        ("TTLStorageRedb", drivers.redb),
        ("TTLStorageCas", drivers.cassandra),
        ("TTLStorageCasCluster", drivers.cassandra_cluster),
        ("TTLStorageDyn", drivers.dynamodb),
    ];
    let targets = targets.map(|(name, reach)| Arc::new(Target::new(name, reach)));
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
