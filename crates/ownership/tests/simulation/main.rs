//! A simulation of the ownership of partitions: many histories of nodes, a store, and faults
//! between them.
//!
//! Each history follows from its seed alone. A seed that fails is printed. `OWNERSHIP_SEED=4711
//! cargo test -p ownership --test simulation` replays it.

#![allow(clippy::unwrap_used)]

mod node;
mod store;
mod world;

use std::ops::Range;

use world::{Mistake, World};

/// The number of histories of the right code, and the number in a long run.
const HISTORIES: u64 = 3_000;
const HISTORIES_OF_A_LONG_RUN: u64 = 100_000;

/// The run must find each mistake within this number of histories.
const HISTORIES_FOR_A_MISTAKE: u64 = 3_000;

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
fn no_two_nodes_work_on_a_partition_and_every_partition_finds_an_owner() {
    let (mut starts, mut hand_overs) = (0, 0);
    for seed in seeds() {
        match World::new(seed, None).run() {
            Ok(world) => {
                starts += world.starts();
                hand_overs += world.hand_overs();
            }
            Err(why) => panic!("seed {seed}: {why}"),
        }
    }
    println!("{starts} starts of partitions, {hand_overs} of them after a handover");
    assert!(hand_overs > 0 && hand_overs < starts);
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..50 {
        let run = || World::new(seed, None).run().unwrap().digest();
        assert_eq!(run(), run(), "seed {seed}");
    }
}

#[test]
fn every_mistake_is_found() {
    for mistake in Mistake::ALL {
        let found = (0..HISTORIES_FOR_A_MISTAKE)
            .find_map(|seed| World::new(seed, Some(mistake)).run().err());
        let why = found.unwrap_or_else(|| panic!("{mistake:?} was not found"));
        println!("{mistake:?}: {why}");
    }
}
