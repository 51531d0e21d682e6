//! The system keyspace on every driver, with its registry of applications, its numbers, the owners
//! of partitions and the members of the cluster: each trial is a test with the name
//! `driver::trial`.
//!
//! A trial has a system keyspace with a name of its own. All keyspaces that a trial makes are
//! dropped at its end, even if the trial fails.

#![allow(clippy::unwrap_used)]

mod database;
mod members;
mod numbers;
mod owners;
mod registry;

use database::Database;
use vvm_tests::trials::{OwnFixtures, on_all_storages, run_trials};

fn main() -> std::process::ExitCode {
    run_trials::<OwnFixtures<Database>>(
        env!("CARGO_TARGET_TMPDIR"),
        None,
        on_all_storages,
        [registry::TRIALS, numbers::TRIALS, owners::TRIALS, members::TRIALS].into_iter().flatten(),
    )
}
