//! A simulation of elections: many histories of nodes, a store, and faults between them.
//!
//! Each history follows from its seed alone. A seed that fails is printed, and replays exactly:
//! `IELECTIONS_SEED=4711 cargo test -p ielections --test simulation`. `IELECTIONS_SCHEDULES` sets
//! the number of histories, and `IELECTIONS_FROM` the first seed.

mod defect;
mod invariants;
mod local_clock;
mod mistaken;
mod store;
mod world;

use std::{
    panic,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    thread,
};

use defect::Defect;
use world::World;

/// The number of histories of the right code, and the number in a long run. `IELECTIONS_SCHEDULES`
/// takes precedence.
const SCHEDULES: u64 = 30_000;
const SCHEDULES_OF_A_LONG_RUN: u64 = 100_000;

/// The run must find each mistake within this number of histories.
const SCHEDULES_FOR_A_DEFECT: u64 = 20_000;

/// The number of histories that a harmless change must survive.
const SCHEDULES_OF_A_HARMLESS_CHANGE: u64 = 2_000;

#[expect(clippy::disallowed_methods, reason = "a run is told its seed and its length")]
fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} must be a number, and is `{text}`")))
}

fn schedules() -> u64 {
    let usual = if tck::trial::is_long() { SCHEDULES_OF_A_LONG_RUN } else { SCHEDULES };
    variable("IELECTIONS_SCHEDULES").unwrap_or(usual)
}

/// Runs histories and returns the number of leaderships in them.
fn run(seeds: std::ops::Range<u64>) -> u64 {
    let (next, terms) = (AtomicU64::new(seeds.start), AtomicU64::new(0));
    let threads = thread::available_parallelism().map_or(1, |n| n.get());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    match panic::catch_unwind(|| World::new(seed, None).run()) {
                        Ok(Ok(led)) => terms.fetch_add(led, Ordering::Relaxed),
                        Ok(Err(violation)) => panic!("seed {seed}: {violation}"),
                        Err(_) => panic!("seed {seed}: see the panic above"),
                    };
                }
            });
        }
    });
    terms.into_inner()
}

#[test]
fn no_two_leaders_work_at_the_same_time() {
    let seeds = match variable("IELECTIONS_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let from = variable("IELECTIONS_FROM").unwrap_or(0);
            from..from + schedules()
        }
    };
    let schedules = seeds.end - seeds.start;
    let terms = run(seeds);
    println!("{schedules} schedules, {terms} leaderships, no violation");
    assert!(terms >= schedules, "hardly anybody ever led: {terms} times");
}

/// Runs a job for each item, on all processors. A job that panics fails the test.
fn on_all_processors<T: Copy + Sync>(things: &[T], job: impl Fn(T) + Sync) {
    let next = AtomicUsize::new(0);
    let threads = thread::available_parallelism().map_or(1, |n| n.get());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(thing) = things.get(next.fetch_add(1, Ordering::Relaxed)) {
                    job(*thing);
                }
            });
        }
    });
}

#[test]
fn each_mistake_is_found() {
    let all = Defect::ALL.into_iter();
    let hunts = all.flat_map(|defect| defect.breaks().iter().map(move |name| (defect, *name)));
    let hunts: Vec<_> = hunts.collect();
    on_all_processors(&hunts, |(defect, name)| {
        let found = (0..SCHEDULES_FOR_A_DEFECT).find_map(|seed| {
            let violation = World::new(seed, Some(defect)).run().err()?;
            (violation.of == name).then_some((seed, violation))
        });
        match found {
            Some((seed, violation)) => println!("{defect:?}: seed {seed}: {violation}"),
            None => {
                panic!("{defect:?} never breaks `{name}` in {SCHEDULES_FOR_A_DEFECT} schedules")
            }
        }
    });
}

/// Each change looks like a mistake and breaks no promise. The test proves the stated reason.
#[test]
fn harmless_changes_break_no_invariant() {
    on_all_processors(&Defect::HARMLESS, |(defect, why)| {
        for seed in 0..SCHEDULES_OF_A_HARMLESS_CHANGE {
            let run = World::new(seed, Some(defect)).run();
            let violation = run.err().map(|violation| violation.to_string());
            assert_eq!(violation, None, "{defect:?} is said to be harmless ({why}): seed {seed}");
        }
    });
}

/// The promise that no two leaders work at the same time needs clocks that continue while a machine
/// sleeps.
#[test]
fn clocks_that_stop_break_the_exclusive_invariant() {
    let found = (0..SCHEDULES_FOR_A_DEFECT).find_map(|seed| {
        let violation = World::with_clocks_that_stop(seed).run().err()?;
        (violation.of == "exclusive").then_some((seed, violation))
    });
    let (seed, violation) = found.expect("clocks that stop harm nobody: promise it");
    println!("seed {seed}: {violation}");
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..20 {
        let run = || World::new(seed, Some(Defect::GetThenPut)).run();
        assert_eq!(run(), run(), "seed {seed}");
    }
}
