//! The sequencer for one event at a time (`EventSequencer`), over the log of a partition and over
//! both places of its numbers, on every driver: each trial is a test with the name `driver::trial`.

#![allow(clippy::unwrap_used)]

mod closing;
mod fixture;
mod numbers;
mod outcomes;

use fixture::EventsFixture;
use trialkit::is_long;
use vvm_tests::trials::{OwnFixtures, Target, run_trials};

/// The number of trials that run at once. On servers they mostly wait.
const THREADS: usize = 5;

fn main() -> std::process::ExitCode {
    run_trials::<OwnFixtures<EventsFixture>>(
        env!("CARGO_TARGET_TMPDIR"),
        Some(THREADS),
        |drivers| {
            let mut targets = vec![
                Target::new("mem", drivers.mem),
                Target::new("redb", drivers.redb),
                Target::new("cassandra", drivers.cassandra),
                Target::new("dynamodb", drivers.dynamodb),
            ];
            // What several servers add is in the suites of storages and of elections.
            if is_long() {
                targets.push(Target::new("cassandra_cluster", drivers.cassandra_cluster));
            }
            targets
        },
        [closing::TRIALS, numbers::TRIALS, outcomes::TRIALS].into_iter().flatten(),
    )
}
