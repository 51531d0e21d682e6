//! Fast series of document numbers on every driver: several nodes draw from the same counters, and
//! crash. Each trial is a test with the name `driver::trial`.

#![allow(clippy::unwrap_used)]

mod database;
mod fleet;
mod waiting;
#[allow(dead_code, reason = "the suite of the crate needs more of it")]
#[path = "../../../crates/docnumbers/tests/fast/wrong.rs"]
mod wrong;

use database::Database;
use vvm_tests::trials::{OwnFixtures, Target, run_trials};

/// The trials of wrong nodes, which need no server.
const FOUND: &[&str] = &["found_by_fleet", "found_by_waiting"];

fn main() -> std::process::ExitCode {
    run_trials::<OwnFixtures<Database>>(
        env!("CARGO_TARGET_TMPDIR"),
        None,
        |drivers| {
            vec![
                Target::new("mem", drivers.mem),
                Target::new("redb", drivers.redb).without(FOUND),
                Target::new("cassandra", drivers.cassandra).without(FOUND),
                Target::new("cassandra_cluster", drivers.cassandra_cluster).without(FOUND),
                Target::new("dynamodb", drivers.dynamodb).without(FOUND),
            ]
        },
        [fleet::TRIALS, fleet::FOUND, waiting::TRIALS, waiting::FOUND].into_iter().flatten(),
    )
}
