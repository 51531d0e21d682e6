//! The system keyspace on every driver, with its registry of applications, its numbers, the owners
//! of partitions and the members of the cluster: each trial is a test with the name
//! `driver::trial`.
//!
//! A trial has a system keyspace with a name of its own. All keyspaces that a trial makes are
//! dropped at its end, also if the trial fails.

#![allow(clippy::unwrap_used)]

mod database;
mod members;
mod numbers;
mod owners;
mod registry;

use database::Database;
use trialkit::is_long;
use vvm_tests::trials::{OwnFixtures, Target, run_trials};

fn main() -> std::process::ExitCode {
    run_trials::<OwnFixtures<Database>>(
        env!("CARGO_TARGET_TMPDIR"),
        None,
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
        [registry::TRIALS, numbers::TRIALS, owners::TRIALS, members::TRIALS].into_iter().flatten(),
    )
}
