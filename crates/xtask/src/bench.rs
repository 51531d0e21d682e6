//! `cargo xtask bench`: the measurements, with servers of their own.

use std::process::Command;

use crate::{
    cargo::{self, cargo},
    error::Result,
    process,
    servers::{OwnServers, Purpose, ServerKind},
};

/// The drivers that a program measures if no argument names drivers.
const ALL: &str = "mem,redb,cassandra,dynamodb";
const EMBEDDED: &str = "mem,redb";

/// Measures every storage driver beside the bare client of its database; on redb also the durable
/// commits and the opening after a crash.
pub(crate) fn storage(arguments: &[String]) -> Result<()> {
    on_servers("bench-storage", ALL, arguments)
}

/// Measures commands on every storage driver, beside the same writes by the bare driver.
pub(crate) fn commands(arguments: &[String]) -> Result<()> {
    on_servers("bench-commands", ALL, arguments)
}

/// Measures commands of a node beside the same commands in PostgreSQL and NATS, if they are
/// installed.
pub(crate) fn peers(arguments: &[String]) -> Result<()> {
    beside_the_binary("bench-peers", arguments)
}

/// Measures document numbers of a fast series on every storage driver.
pub(crate) fn numbers(arguments: &[String]) -> Result<()> {
    on_servers("bench-numbers", ALL, arguments)
}

/// Measures how long partitions take to recover.
pub(crate) fn recovery(arguments: &[String]) -> Result<()> {
    on_servers("bench-recovery", EMBEDDED, arguments)
}

/// Measures a node as its users see it.
pub(crate) fn node(arguments: &[String]) -> Result<()> {
    beside_the_binary("bench-node", arguments)
}

/// Measures how fast a node delivers events to the clients that follow a log.
pub(crate) fn followers(arguments: &[String]) -> Result<()> {
    beside_the_binary("bench-followers", arguments)
}

/// Measures requests that a node forwards to another one.
pub(crate) fn hop(arguments: &[String]) -> Result<()> {
    alone("bench-hop", arguments)
}

/// Runs a program that needs nothing else.
fn alone(program: &str, arguments: &[String]) -> Result<()> {
    let program = ["--release", "--quiet", "--package", "vvm-tests", "--bin", program, "--"];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    cargo::run(&[&["run"], &program[..], &arguments].concat())
}

/// Runs a program that starts the `vvm` beside it.
fn beside_the_binary(program: &str, arguments: &[String]) -> Result<()> {
    process::run(built_beside_the_binary(program)?.args(arguments))
}

/// Builds a program and the `vvm` beside it.
pub(crate) fn built_beside_the_binary(program: &str) -> Result<Command> {
    let packages = ["--package", "vvm-cli", "--package", "vvm-tests"];
    let programs = ["--bin", "vvm", "--bin", program];
    cargo::run(&[&["build", "--release"], &packages[..], &programs[..]].concat())?;
    Ok(Command::new(cargo::target_folder()?.join("release").join(program)))
}

fn on_servers(program: &str, usual: &str, arguments: &[String]) -> Result<()> {
    let program = ["--release", "--package", "vvm-tests", "--bin", program];
    // The program is built first. A compiler that runs beside a server would slow down both, and
    // the measurements.
    cargo::run(&[&["build"], &program[..]].concat())?;
    let servers = OwnServers::new()?;
    let wanted = ServerKind::ALL.into_iter();
    let wanted = wanted.filter(|kind| is_chosen(arguments, usual, kind.driver()));
    let variables = servers.start(&wanted.collect::<Vec<_>>(), Purpose::Measurements)?;
    let mut command = cargo(&[&["run", "--quiet"], &program[..]].concat())?;
    command.arg("--").args(arguments).envs(variables);
    if value_of("--drivers", arguments).is_none() {
        command.args(["--drivers", usual]);
    }
    process::run_reading(&mut command, |line| println!("{line}"))
}

/// Measures the cost of drawing numbers.
pub(crate) fn sequencer() -> Result<()> {
    cargo::run(&["bench", "--quiet", "--package", "isequencer", "--bench", "sequencer"])
}

/// Returns the value of an option, such as `--drivers`.
pub(crate) fn value_of<'a>(option: &str, arguments: &'a [String]) -> Option<&'a str> {
    let mut words = arguments.iter().zip(arguments.iter().skip(1).map(Some).chain([None]));
    words.find_map(|(argument, next)| match argument.strip_prefix(option) {
        Some("") => next.map(String::as_str),
        Some(rest) => rest.strip_prefix('='),
        None => None,
    })
}

/// Returns whether a driver is among `--drivers`, or among the usual drivers if `--drivers` is
/// missing.
fn is_chosen(arguments: &[String], usual: &str, driver: &str) -> bool {
    value_of("--drivers", arguments).unwrap_or(usual).split(',').any(|chosen| chosen == driver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_servers_of_chosen_drivers_are_needed() {
        let chosen = |arguments: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
            let drivers = ["cassandra", "cassandra_cluster", "dynamodb"];
            drivers.map(|driver| is_chosen(&arguments, ALL, driver))
        };
        assert_eq!(chosen(&["--rounds", "5"]), [true, false, true]);
        assert_eq!(chosen(&["--drivers", "redb,cassandra"]), [true, false, false]);
        assert_eq!(chosen(&["--drivers", "cassandra_cluster"]), [false, true, false]);
        assert_eq!(chosen(&["--rounds", "5", "--drivers=dynamodb"]), [false, false, true]);
        assert_eq!(chosen(&["--drivers", "redb"]), [false; 3]);
        assert!(!is_chosen(&[], EMBEDDED, "cassandra"));
    }
}
