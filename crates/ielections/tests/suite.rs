//! The conformance suite over the store in memory of this crate.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use clock::Clock;
use ielections::{
    MemStore,
    suite::{Suite, trials},
};
use libtest_mimic::{Arguments, Trial};

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = Arc::new(MemStore::new(Clock::system()));
    let suite = Arc::new(Suite::new(vec![store], Clock::system()));
    let tests = trials().map(|trial| {
        let (handle, suite) = (runtime.handle().clone(), Arc::clone(&suite));
        Trial::test(format!("ElectionsTest::{}", trial.name()), move || {
            handle.block_on(suite.run(trial)).map_err(Into::into)
        })
    });
    // The trials mostly wait, so many run at a time.
    let arguments = Arguments { test_threads: Some(16), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, tests.collect()).exit();
}
