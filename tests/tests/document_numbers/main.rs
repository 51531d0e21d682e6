//! Fast series of document numbers on every driver: several nodes draw from the same counters, and
//! crash. Each trial is a test with the name `driver::trial`.

#![allow(clippy::unwrap_used)]

mod database;
mod fleet;
mod waiting;

use database::Database;
use vvm_tests::trials::{OwnFixtures, Target, run_trials};

fn main() -> std::process::ExitCode {
    run_trials::<OwnFixtures<Database>>(
        env!("CARGO_TARGET_TMPDIR"),
        None,
        |drivers| {
            vec![
                Target::new("mem", drivers.mem),
                Target::new("redb", drivers.redb),
                Target::new("cassandra", drivers.cassandra),
                Target::new("cassandra_cluster", drivers.cassandra_cluster),
                Target::new("dynamodb", drivers.dynamodb),
            ]
        },
        [fleet::TRIALS, waiting::TRIALS].into_iter().flatten(),
    )
}
