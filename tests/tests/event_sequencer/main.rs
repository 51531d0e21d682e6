//! The sequencer for one event at a time (`EventSequencer`), over the log of a partition and over
//! both places of its numbers, on every driver: each trial is a test with the name `driver::trial`.

#![allow(clippy::unwrap_used)]

mod closing;
mod fixture;
mod numbers;
mod outcomes;

use fixture::EventsFixture;
use vvm_tests::trials::{OwnFixtures, Target, run_trials};

/// The number of trials that run at once. On servers they mostly wait.
const THREADS: usize = 5;

fn main() -> std::process::ExitCode {
    run_trials::<OwnFixtures<EventsFixture>>(
        env!("CARGO_TARGET_TMPDIR"),
        Some(THREADS),
        |drivers| {
            vec![
                Target::new("mem", drivers.mem),
                Target::new("redb", drivers.redb),
                Target::new("cassandra", drivers.cassandra),
                Target::new("cassandra_cluster", drivers.cassandra_cluster),
                Target::new("dynamodb", drivers.dynamodb),
            ]
        },
        [closing::TRIALS, numbers::TRIALS, outcomes::TRIALS].into_iter().flatten(),
    )
}
