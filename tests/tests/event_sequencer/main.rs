//! The sequencer for one event at a time (`EventSequencer`), over the log of a partition and over
//! both places of its numbers, on every driver: each trial is a test with the name `driver::trial`.

#![allow(clippy::unwrap_used)]

mod closing;
mod fixture;
mod numbers;
mod outcomes;

use fixture::EventsFixture;
use vvm_tests::trials::{OwnFixtures, on_all_storages, run_trials};

/// The number of trials that run at once. On servers they mostly wait.
const THREADS: usize = 5;

fn main() -> std::process::ExitCode {
    run_trials::<OwnFixtures<EventsFixture>>(
        env!("CARGO_TARGET_TMPDIR"),
        Some(THREADS),
        on_all_storages,
        [closing::TRIALS, numbers::TRIALS, outcomes::TRIALS].into_iter().flatten(),
    )
}
