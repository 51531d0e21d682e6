//! A simulation of balancing: many histories of nodes that come, leave, crash, drain and see their
//! cluster late.
//!
//! Each history follows from its seed alone. A seed that fails is printed. `OWNERSHIP_SEED=4711
//! cargo test -p ownership --test balancing` replays it.

#![allow(clippy::unwrap_used)]

mod figure;
mod history;
mod process;
mod store;
mod world;

use std::ops::Range;

use world::Mistake;

/// The number of histories of the right code, and the number in a long run.
const HISTORIES: u64 = 400;
const HISTORIES_OF_A_LONG_RUN: u64 = 100_000;

/// The run must find each mistake within this number of histories.
const HISTORIES_FOR_A_MISTAKE: u64 = 1_000;

#[expect(clippy::disallowed_methods, reason = "a run is told its seed")]
fn seeds() -> Range<u64> {
    match std::env::var("OWNERSHIP_SEED") {
        Ok(seed) => {
            let seed = seed.parse().unwrap();
            seed..seed + 1
        }
        Err(_) if tck::trial::is_long() => 0..HISTORIES_OF_A_LONG_RUN,
        Err(_) => 0..HISTORIES,
    }
}

#[test]
fn every_partition_finds_an_owner_and_the_loads_even_out_by_the_fewest_moves() {
    let mut all = history::Outcome::default();
    for seed in seeds() {
        let outcome = history::run(seed, None).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        all.owned = all.owned.max(outcome.owned);
        all.owned_after_refusal = all.owned_after_refusal.max(outcome.owned_after_refusal);
        all.even = all.even.max(outcome.even);
        all.moves += outcome.moves;
        all.takes += outcome.takes;
    }
    let history::Outcome { owned, owned_after_refusal, even, moves, takes, .. } = all;
    println!("after the last change of nodes every partition works within {owned} ms");
    println!("or within {owned_after_refusal} ms if nodes could not start it before");
    println!("the loads are even within {even} ms; {moves} moves, {takes} takes");
    assert!(all.moves > 0 && all.takes > 0);
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..20 {
        let run = || history::run(seed, None).unwrap().digest;
        assert_eq!(run(), run(), "seed {seed}");
    }
}

#[test]
fn every_mistake_is_found() {
    for mistake in Mistake::ALL {
        let found =
            (0..HISTORIES_FOR_A_MISTAKE).find_map(|seed| history::run(seed, Some(mistake)).err());
        let why = found.unwrap_or_else(|| panic!("{mistake:?} was not found"));
        println!("{mistake:?}: {why}");
    }
}
