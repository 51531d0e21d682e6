//! The suite over the store in memory of `ielections`.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use clock::Clock;
use ielections::MemStore;
use ielections_tck::{Suite, trials};
use libtest_mimic::Arguments;
use trialkit::harness;

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = Arc::new(MemStore::new(Clock::system()));
    let suite = Arc::new(Suite::new(vec![store], Clock::system()));
    let tests = harness::tests(runtime.handle(), "ElectionsTest::", &suite, trials());
    // The trials mostly wait, so many run at a time.
    let arguments = Arguments { test_threads: Some(48), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, tests).exit();
}
