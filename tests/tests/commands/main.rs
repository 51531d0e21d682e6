//! Commands on every driver, from the command to what is stored of it: each trial is a test, as `driver::trial`.

#![allow(clippy::unwrap_used)]

mod basics;
mod crash;
mod incarnations;
mod late;
mod limits;
mod marked;
mod rounds;
mod sabotage;
mod scene;
mod stage;
mod unseen;

use std::panic::{AssertUnwindSafe, resume_unwind};

use futures::FutureExt;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use stage::{Stage, TrialFn};
use tokio::runtime::Runtime;
use vvm_tests::reach::{Drivers, Reach};

async fn run(reach: Reach, trial: TrialFn) -> Result<Completion, Failed> {
    let subject = match reach {
        Reach::NotAskedFor(why) => return Ok(Completion::ignored_with(why)),
        Reach::Subject(subject) => subject,
    };
    let stage = Stage::new(subject).await?;
    let outcome = AssertUnwindSafe(trial(&stage)).catch_unwind().await;
    let dropped = stage.remove().await;
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
        ("dynamodb", drivers.dynamodb),
    ];
    let trials = [
        basics::TRIALS,
        crash::TRIALS,
        incarnations::TRIALS,
        late::TRIALS,
        limits::TRIALS,
        marked::TRIALS,
        rounds::TRIALS,
        sabotage::TRIALS,
        unseen::TRIALS,
    ];
    let mut tests = Vec::new();
    for (driver, reach) in targets {
        for &(name, trial) in trials.into_iter().flatten() {
            let (handle, reach) = (runtime.handle().clone(), reach.clone());
            let body = move || handle.block_on(run(reach, trial));
            tests.push(Trial::ignorable_test(format!("{driver}::{name}"), body));
        }
    }
    libtest_mimic::run(&arguments, tests).exit_code()
}
