//! A node under requests of all kinds: valid ones, and valid ones that were changed.
//!
//! The suite starts `vvm serve` with tokens and sends requests to both ports. Each request follows
//! from its seed and its number, and from the ids of documents that earlier answers named. The
//! table of [`routes`] lists where they go. [`judge`] checks each answer, and [`followed`] the
//! events that followers of logs receive. At the end the log of each workspace must have exactly
//! the commands that were answered as done, and the documents must be what the logs say.
//!
//! `cargo test -p vvm-cli --test fuzz -- requests 1000000` sends that many requests, with a seed
//! that is printed. With a second number, as in `-- requests 1000000 4711`, the seed is given. A
//! request that fails is printed as it was sent.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod answers;
mod bodies;
mod campaign;
mod followed;
mod generator;
mod heads;
mod judge;
mod known;
mod logs;
mod memory;
#[allow(dead_code, reason = "this suite needs a part of it")]
#[path = "../support/node.rs"]
mod node;
mod paths;
mod routes;
mod tokens;
mod wire;

use std::{process::ExitCode, time::SystemTime};

use libtest_mimic::{Arguments, Failed, Trial};
use tck::trial::is_long;

/// The number of requests, and the number in a long run.
const REQUESTS: u64 = 5_000;
const REQUESTS_OF_A_LONG_RUN: u64 = 1_000_000;

/// The seed of the sample that each run sends.
const SEED: u64 = 20_261_126;

fn run(requests: u64, seed: u64) -> Result<(), Failed> {
    println!("{requests} requests with the seed {seed}");
    campaign::run(requests, seed).map_err(|wrong| Failed::from(format!("seed {seed}: {wrong}")))
}

/// A seed that no earlier run had.
fn new_seed() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("requests", numbers)) =
        arguments.split_first().map(|(first, rest)| (first.as_str(), rest))
    {
        let number = |at: usize| numbers.get(at).map(|text| text.parse::<u64>().unwrap());
        let (requests, seed) = (number(0).unwrap(), number(1).unwrap_or_else(new_seed));
        return match run(requests, seed) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failed) => {
                eprintln!("{}", failed.message().unwrap_or_default());
                ExitCode::FAILURE
            }
        };
    }
    let all =
        Trial::test(
            "a_node_answers_any_request_as_documented_and_keeps_its_data",
            || match is_long() {
                true => run(REQUESTS_OF_A_LONG_RUN, new_seed()),
                false => run(REQUESTS, SEED),
            },
        );
    let found = judge::DEFECTS.iter().map(|defect| {
        Trial::test(format!("found::{}", defect.name), move || judge::is_found(defect))
    });
    let followed = followed::defects::DEFECTS.iter().map(|defect| {
        let is_found = || followed::defects::is_found(defect);
        Trial::test(format!("found::followed_{}", defect.name), is_found)
    });
    let compared = Trial::test("found::followed_event_that_is_in_no_log", || {
        followed::defects::are_compared()
    });
    let trials = [all, compared].into_iter().chain(found).chain(followed).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
