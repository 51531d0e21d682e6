//! `cargo xtask simulate`: many histories of elections.

use std::time::Instant;

use crate::{cargo::cargo, error::Result, process};

const SIMULATION: [&str; 9] = [
    "test",
    "--release",
    "--package",
    "ielections",
    "--test",
    "simulation",
    "--",
    "--nocapture",
    "no_two_leaders_work_at_the_same_time",
];

/// Runs `schedules` histories, the first with the seed `from`, or only the history of `seed`.
/// Prints the time that the run took.
pub(crate) fn elections(schedules: u64, from: u64, seed: Option<u64>) -> Result<()> {
    let mut command = cargo(&SIMULATION)?;
    command.env("IELECTIONS_SCHEDULES", schedules.to_string());
    command.env("IELECTIONS_FROM", from.to_string());
    match seed {
        Some(seed) => command.env("IELECTIONS_SEED", seed.to_string()),
        None => command.env_remove("IELECTIONS_SEED"),
    };
    let started = Instant::now();
    process::run(&mut command)?;
    eprintln!("the simulation and its build took {} s", started.elapsed().as_secs());
    Ok(())
}
