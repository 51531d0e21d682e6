//! The suite of elections over the system keyspace of the driver in memory.
//! `tests/tests/elections.rs` runs the suite over the other drivers.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use clock::{Clock, Instant};
use ielections::suite::{Suite, trials};
use istorage::{KeyspaceName, mem::MemDriver};
use libtest_mimic::{Arguments, Trial};
use sysvvm::System;

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (clock, keyspace) = (Clock::system(), KeyspaceName::new("sysvvm").unwrap());
    let driver = Arc::new(MemDriver::new(clock.clone()));
    let system = System::open(driver, keyspace, clock.clone(), Instant::FAR_FUTURE);
    let store = Arc::new(runtime.block_on(system).unwrap().elections());
    let suite = Arc::new(Suite::new(vec![store], clock));
    let tests = trials().map(|trial| {
        let (handle, suite) = (runtime.handle().clone(), Arc::clone(&suite));
        Trial::test(format!("TTLStorageTest::{}", trial.name()), move || {
            handle.block_on(suite.run(trial)).map_err(Into::into)
        })
    });
    // The trials mostly wait, so many run at the same time.
    let arguments = Arguments { test_threads: Some(16), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, tests.collect()).exit();
}
