//! The system keyspace on every driver, its registry of applications and its numbers: each trial is a test, as `driver::trial`.
//!
//! A trial has a system keyspace with a name of its own. Whatever keyspaces it makes are dropped when it is over, also if
//! it fails.

#![allow(clippy::unwrap_used)]

mod database;
mod numbers;
mod registry;

use vvm_tests::trials::hold;

fn main() -> std::process::ExitCode {
    hold(
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
