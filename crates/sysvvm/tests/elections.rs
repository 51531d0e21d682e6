//! The suite of elections over the system keyspace of the driver in memory.
//! `tests/tests/elections.rs` runs the suite over the other drivers.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use clock::{Clock, Instant};
use istorage::{KeyspaceName, mem::MemDriver};
use libtest_mimic::Arguments;
use sysvvm::System;
use tck::{
    elections::{Suite, trials},
    trial::harness,
};

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (clock, keyspace) = (Clock::system(), KeyspaceName::new("sysvvm").unwrap());
    let driver = Arc::new(MemDriver::new(clock.clone()));
    let system = System::open(driver, keyspace, clock.clone(), Instant::FAR_FUTURE);
    let store = Arc::new(runtime.block_on(system).unwrap().elections());
    let suite = Arc::new(Suite::new(vec![store], clock));
    let tests = harness::tests(runtime.handle(), "TTLStorageTest::", &suite, trials());
    // The trials mostly wait, so many run at the same time.
    let arguments = Arguments { test_threads: Some(48), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, tests).exit();
}
