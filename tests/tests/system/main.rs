//! The system keyspace on every driver, its registry of applications and its numbers: each trial is a test, as `driver::trial`.
//!
//! A trial has a system keyspace with a name of its own. Whatever keyspaces it makes are dropped when it is over, also if
//! it fails.

#![allow(clippy::unwrap_used)]

mod database;
mod numbers;
mod registry;

use std::panic::{AssertUnwindSafe, resume_unwind};

use database::{Database, TrialFn};
use futures::FutureExt;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tokio::runtime::Runtime;
use vvm_tests::reach::{Drivers, Reach};

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
    let drivers = runtime.block_on(Drivers::reach(folder.path())).unwrap();
    let targets = [
        ("mem", drivers.mem),
        ("redb", drivers.redb),
        ("cassandra", drivers.cassandra),
        ("cassandra_cluster", drivers.cassandra_cluster),
        ("dynamodb", drivers.dynamodb),
    ];
    let mut tests = Vec::new();
    for (driver, reach) in targets {
        for &(name, trial) in registry::TRIALS.iter().chain(numbers::TRIALS) {
            let (handle, reach) = (runtime.handle().clone(), reach.clone());
            let body = move || handle.block_on(run(reach, trial));
            tests.push(Trial::ignorable_test(format!("{driver}::{name}"), body));
        }
    }
    libtest_mimic::run(&arguments, tests).exit_code()
}
