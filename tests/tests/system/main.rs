//! The registry of applications on every driver: each trial is a test, as `driver::trial`.
//!
//! A trial has a system keyspace with a name of its own. Whatever keyspaces it makes are dropped when it is over, also if
//! it fails.

#![allow(clippy::unwrap_used)]

mod registry;

use std::{
    panic::{AssertUnwindSafe, resume_unwind},
    sync::Arc,
};

use futures::FutureExt;
use istorage_tck::Subject;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use registry::{Database, TRIALS, TrialFn};
use tokio::runtime::Runtime;
use vvm_tests::{
    servers::{CASSANDRA, CASSANDRA_CLUSTER, DYNAMODB, Server},
    subjects::{Cassandra, DynamoDb, MemInRealTime, Redb},
};

/// How a driver is reached: itself, or why it is not.
#[derive(Clone)]
enum Reach {
    NotAskedFor(&'static str),
    Subject(Arc<dyn Subject>),
}

async fn run(reach: Reach, trial: TrialFn) -> Result<Completion, Failed> {
    let subject = match reach {
        Reach::NotAskedFor(why) => return Ok(Completion::ignored_with(why)),
        Reach::Subject(subject) => subject,
    };
    let database = Database::new(&*subject).await?;
    let outcome = AssertUnwindSafe(trial(&database)).catch_unwind().await;
    let dropped = database.remove().await;
    if let Err(panic) = outcome {
        resume_unwind(panic);
    }
    dropped?;
    Ok(Completion::Completed)
}

fn main() -> std::process::ExitCode {
    let arguments = Arguments::from_args();
    let runtime = Runtime::new().unwrap();
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let redb = runtime.block_on(Redb::open_in(folder.path())).unwrap();
    let on = |server: Server, make: fn(&str) -> Arc<dyn Subject>| match server.address() {
        Some(address) => Reach::Subject(make(&address)),
        None => Reach::NotAskedFor(server.not_asked_for),
    };
    let targets = [
        ("mem", Reach::Subject(Arc::new(MemInRealTime::default()))),
        ("redb", Reach::Subject(Arc::new(redb))),
        ("cassandra", on(CASSANDRA, |nodes| Arc::new(Cassandra::at(nodes)))),
        ("cassandra_cluster", on(CASSANDRA_CLUSTER, |nodes| Arc::new(Cassandra::at(nodes)))),
        ("dynamodb", on(DYNAMODB, |endpoint| Arc::new(DynamoDb::at(endpoint)))),
    ];
    let mut tests = Vec::new();
    for (driver, reach) in targets {
        for &(name, trial) in TRIALS {
            let (handle, reach) = (runtime.handle().clone(), reach.clone());
            let body = move || handle.block_on(run(reach, trial));
            tests.push(Trial::ignorable_test(format!("{driver}::{name}"), body));
        }
    }
    libtest_mimic::run(&arguments, tests).exit_code()
}
