//! A model of indexes and unique fields: many histories of a partition, its leaders, a storage, and
//! faults between them.
//!
//! The decisions are in `decide`, and know nothing of the model. Each history follows from its seed
//! alone. A seed that fails is printed with its steps, and replays exactly:
//! `INDEX_MODEL_SEED=4711 cargo test -p eventlog --test index_model lists -- --nocapture`, with
//! `INDEX_MODEL_DEFECT=NoEmpties` for an engine with a mistake. `INDEX_MODEL_HISTORIES` sets the
//! number of histories, and `INDEX_MODEL_FROM` the first seed. `INDEX_MODEL_SHORTEST=10000` prints
//! the shortest of so many histories that fails, with or without a mistake.

#![allow(clippy::unwrap_used)]

mod build;
mod commands;
mod commit;
mod decide;
mod defect;
mod faults;
mod group;
mod judge;
mod leader;
mod mistaken;
mod plan;
mod reader;
mod rows;
mod store;
mod world;

use std::{
    ops::Range,
    sync::{
        Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
};

use defect::Defect;
use world::{HistoryReport, World};

/// The number of histories of the right design, and the number in a long run.
const HISTORIES: u64 = 2_000;
const HISTORIES_OF_A_LONG_RUN: u64 = 200_000;

/// Each mistake must be found within this number of histories.
const HISTORIES_FOR_A_DEFECT: u64 = 2_000;

/// The number of histories that a harmless change must survive, and the number in a long run.
const HISTORIES_OF_A_HARMLESS_CHANGE: u64 = 300;
const HARMLESS_HISTORIES_OF_A_LONG_RUN: u64 = 10_000;

#[expect(clippy::disallowed_methods, reason = "a run is told its seed and its length")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn number(name: &str) -> Option<u64> {
    let text = variable(name)?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, and is `{text}`")))
}

/// The steps of a history, and what came of it.
fn story(seed: u64, defect: Option<Defect>) -> String {
    let (steps, outcome) = World::new(seed, defect).traced();
    let steps = steps.join("\n  ");
    format!("seed {seed}, {defect:?}:\n  {steps}\n  {outcome:?}")
}

/// The story with the fewest steps of all histories that fail. `INDEX_MODEL_OF` names the promise.
fn shortest_story(seeds: Range<u64>, defect: Option<Defect>) -> Option<String> {
    let of = variable("INDEX_MODEL_OF");
    let is_wanted = |name: &str| of.as_ref().is_none_or(|of| of == name);
    let fails = |seed: &u64| World::new(*seed, defect).run().is_err_and(|it| is_wanted(it.of));
    let steps = |seed: &u64| World::new(*seed, defect).traced().0.len();
    seeds.filter(fails).min_by_key(steps).map(|seed| story(seed, defect))
}

/// Runs histories on all processors.
fn run(seeds: Range<u64>) -> HistoryReport {
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let mut sum = HistoryReport::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return sum;
            }
            match World::new(seed, None).run() {
                Ok(report) => sum.add(&report),
                Err(_) => panic!("{}", story(seed, None)),
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, |n| n.get());
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut sum = HistoryReport::default();
        for thread in threads {
            match thread.join() {
                Ok(report) => sum.add(&report),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        sum
    })
}

#[test]
fn lists_equal_scans_and_keys_have_one_holder() {
    let harmless = Defect::HARMLESS.iter().map(|(defect, _)| *defect);
    let mut defects = Defect::ALL.into_iter().chain(harmless);
    let defect = variable("INDEX_MODEL_DEFECT")
        .and_then(|name| defects.find(|defect| format!("{defect:?}") == name));
    if let Some(seed) = number("INDEX_MODEL_SEED") {
        println!("{}", story(seed, defect));
        return;
    }
    if let Some(histories) = number("INDEX_MODEL_SHORTEST") {
        let story = shortest_story(0..histories, defect);
        println!("{}", story.as_deref().unwrap_or("no history fails"));
        return;
    }
    let usual = if tck::trial::is_long() { HISTORIES_OF_A_LONG_RUN } else { HISTORIES };
    let histories = number("INDEX_MODEL_HISTORIES").unwrap_or(usual);
    let from = number("INDEX_MODEL_FROM").unwrap_or(0);
    let report = run(from..from + histories);
    println!("{histories} histories: {report:?}");
    assert!(report.commands > 10 * histories, "hardly anything was ever done");
    assert!(report.lists > histories && report.builds > histories, "hardly anything was read");
    assert!(report.refused > histories / 2 && report.late > histories / 2, "hardly any fault");
}

/// Runs a job for each item, on all processors. A job that panics fails the test.
fn on_all_processors<T: Sync>(things: &[T], job: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let threads = thread::available_parallelism().map_or(1, |n| n.get());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(thing) = things.get(next.fetch_add(1, Ordering::Relaxed)) {
                    job(thing);
                }
            });
        }
    });
}

#[test]
fn each_mistake_is_found() {
    let missed = Mutex::new(Vec::new());
    let histories = number("INDEX_MODEL_HISTORIES").unwrap_or(HISTORIES_FOR_A_DEFECT);
    let named = variable("INDEX_MODEL_DEFECT");
    let is_wanted =
        |defect: &Defect| named.as_ref().is_none_or(|name| format!("{defect:?}") == *name);
    let wanted: Vec<Defect> = Defect::ALL.into_iter().filter(is_wanted).collect();
    on_all_processors(&wanted, |defect| {
        let first = defect.first_seed();
        let found = (first..first + histories).find_map(|seed| {
            let violation = World::new(seed, Some(*defect)).run().err()?;
            Some((seed, violation))
        });
        match found {
            Some((seed, violation)) => {
                println!("{defect:?}: seed {seed}: {}: {}", violation.of, violation.what);
            }
            None => missed.lock().unwrap().push(*defect),
        }
    });
    let missed = missed.into_inner().unwrap();
    assert!(missed.is_empty(), "not found in {histories} histories: {missed:?}");
}

/// Each change looks like a mistake and breaks no promise. The test proves the stated reason.
#[test]
fn harmless_changes_break_no_promise() {
    let histories = match tck::trial::is_long() {
        true => HARMLESS_HISTORIES_OF_A_LONG_RUN,
        false => HISTORIES_OF_A_HARMLESS_CHANGE,
    };
    on_all_processors(&Defect::HARMLESS, |(defect, why)| {
        for seed in 0..histories {
            let run = World::new(seed, Some(*defect)).run();
            assert!(run.is_ok(), "said to be harmless ({why}): {}", story(seed, Some(*defect)));
        }
    });
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..20 {
        let run = |defect| World::new(seed, defect).traced();
        assert_eq!(run(None), run(None), "seed {seed}");
        let defect = Some(Defect::RecoveryWithoutEntries);
        assert_eq!(run(defect), run(defect), "seed {seed}");
    }
}
