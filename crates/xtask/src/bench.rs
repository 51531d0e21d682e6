//! `cargo xtask bench`: the measurements, with servers of their own.

use crate::{
    cargo::{self, cargo},
    error::Result,
    process,
    servers::{Kind, OwnServers},
};

const BENCH_STORAGE: [&str; 5] = ["--release", "--package", "vvm-tests", "--bin", "bench-storage"];

/// Measures every storage driver beside the bare client of its database.
pub(crate) fn storage(arguments: &[String]) -> Result<()> {
    // Built first: a compiler beside a server would slow both, and the measurements.
    cargo::run(&[&["build"], &BENCH_STORAGE[..]].concat())?;
    let servers = OwnServers::new()?;
    let variables = servers.start(&[Kind::Cassandra, Kind::Dynamodb])?;
    let mut command = cargo(&[&["run", "--quiet"], &BENCH_STORAGE[..]].concat())?;
    command.arg("--").args(arguments).envs(variables);
    process::run_reading(&mut command, |_| {})
}
