//! The suite over the store in memory of `ielections`, and the proof of the suite: each wrong store
//! fails a trial by name.

#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;
mod wrong_stores;

use std::sync::Arc;

use clock::Clock;
use ielections::TtlStore;
use libtest_mimic::Arguments;
use tck::{
    elections::{MemStore, Suite, trials},
    trial::{Conclusion, TrialRunner, harness},
};

use support::wrong;
use wrong_stores::{Defect, TABLE, WrongStore};

fn suite(store: impl TtlStore + 'static) -> Suite {
    Suite::new(vec![Arc::new(store)], Clock::system())
}

async fn conclusion(defect: Defect, name: &'static str) -> Conclusion {
    let trial = trials().find(|trial| trial.name() == name).unwrap();
    suite(WrongStore::new(defect)).run(trial).await
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let right = Arc::new(suite(MemStore::new(Clock::system())));
    let mut tests = harness::tests(runtime.handle(), "ElectionsTest::", &right, trials());
    tests.extend(wrong(runtime.handle(), TABLE, conclusion));
    // The trials mostly wait, so many run at a time.
    let arguments = Arguments { test_threads: Some(48), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, tests).exit();
}
