//! The system keyspace on every driver, with its registry of applications and its numbers: each
//! trial is a test with the name `driver::trial`.
//!
//! A trial has a system keyspace with a name of its own. All keyspaces that a trial makes are
//! dropped at its end, also if the trial fails.

#![allow(clippy::unwrap_used)]

mod database;
mod numbers;
mod registry;

use vvm_tests::trials::run_trials;

fn main() -> std::process::ExitCode {
    run_trials(
        env!("CARGO_TARGET_TMPDIR"),
        |drivers| {
            vec![
                ("mem", drivers.mem),
                ("redb", drivers.redb),
                ("cassandra", drivers.cassandra),
                ("cassandra_cluster", drivers.cassandra_cluster),
                ("dynamodb", drivers.dynamodb),
            ]
        },
        &[registry::TRIALS, numbers::TRIALS],
    )
}
