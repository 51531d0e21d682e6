//! Many histories of a partition: leaders, clients, a database, and all kinds of faults between
//! them.
//!
//! Each history follows from its seed alone. A history runs on one thread and has its own clock.
//! The history decides when time passes, when calls are sent, and when calls arrive. A seed that
//! fails is printed, and `cargo test -p vvm-processor --test simulation -- seed 4711` prints the
//! steps of its history. `-- schedules 100000` runs that many histories. With a second number, as
//! in `-- schedules 100000 4711`, they start with that seed. `-- twice 1000` runs each history
//! twice.

#![allow(clippy::unwrap_used)]

mod call_turns;
mod clients;
mod database;
mod defects;
mod earlier_events;
mod gated_storage;
mod history;
mod plan;
mod readers;

use std::{
    cell::{Cell, RefCell},
    ops::Range,
    panic,
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use defects::Defect;
use history::HistoryReport;
use libtest_mimic::{Arguments, Failed, Trial};
use trialkit::is_long;

/// The number of histories, and the number in a long run.
const SCHEDULES: u64 = 1_500;
const SCHEDULES_OF_A_LONG_RUN: u64 = 6_000;

/// Each lie must be found within this number of histories.
const SCHEDULES_FOR_A_DEFECT: u64 = 2_000;

/// The number of seeds that are run twice.
const REPLAYED: u64 = 50;

thread_local! {
    /// The first panic of a history, in any of its tasks.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    static IS_HISTORY: Cell<bool> = const { Cell::new(false) };
}

/// Records the panics of a history, including those that a runtime catches. A panic fails its
/// history.
fn catch_panics() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if IS_HISTORY.get() {
            PANIC.with_borrow_mut(|panic| _ = panic.get_or_insert_with(|| info.to_string()));
        } else {
            usual(info);
        }
    }));
}

/// Runs the history of a seed, and returns its result or its first error.
fn run(seed: u64, defect: Option<Defect>, is_verbose: bool) -> Result<HistoryReport, String> {
    IS_HISTORY.set(true);
    let outcome = panic::catch_unwind(|| history::run(seed, defect, is_verbose));
    IS_HISTORY.set(false);
    match (PANIC.take(), outcome) {
        (None, Ok(report)) => Ok(report),
        (Some(wrong), _) => Err(format!("seed {seed}: {wrong}")),
        (None, Err(_)) => Err(format!("seed {seed}: it panicked")),
    }
}

fn all(seeds: Range<u64>) -> Result<HistoryReport, Failed> {
    let next = AtomicU64::new(seeds.start);
    let threads = thread::available_parallelism().map_or(1, |n| n.get());
    let work = || {
        let mut sum = HistoryReport::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return Ok(sum);
            }
            let report = run(seed, None, false).inspect_err(|_| {
                // The other threads need not go on.
                next.store(seeds.end, Ordering::Relaxed);
            })?;
            sum.add(&report);
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut sum = HistoryReport::default();
        for thread in threads {
            let report: HistoryReport =
                thread.join().unwrap().map_err(|wrong: String| Failed::from(wrong))?;
            sum.add(&report);
        }
        Ok(sum)
    })
}

fn histories(seeds: Range<u64>) -> Result<(), Failed> {
    let schedules = seeds.end - seeds.start;
    let HistoryReport { done, read, logs, lists, events, leaders, calls, calls_at_level_0, .. } =
        all(seeds)?;
    println!(
        "{schedules} schedules, {leaders} leaders, {events} events, {done} commands done, {read} reads, \
         {logs} logs and {lists} lists to their ends, {calls} calls of the storage, {calls_at_level_0} of \
         them at trust level 0"
    );
    if schedules >= 100 && (logs == 0 || lists == 0) {
        return Err("no log, or no list, was ever read to its end".into());
    }
    if schedules >= 100 && ((done as u64) < 3 * schedules || (read as u64) < schedules) {
        return Err("hardly anything was ever done or read".into());
    }
    Ok(())
}

fn replays(seeds: Range<u64>) -> Result<(), Failed> {
    for seed in seeds {
        let (one, two) = (run(seed, None, false)?, run(seed, None, false)?);
        if one != two {
            return Err(format!("seed {seed}: {one:?}, and then {two:?}").into());
        }
    }
    Ok(())
}

fn is_found(defect: Defect) -> Result<(), Failed> {
    let found = (0..SCHEDULES_FOR_A_DEFECT).find_map(|seed| run(seed, Some(defect), false).err());
    let wrong = found
        .ok_or_else(|| format!("the defect was not found in {SCHEDULES_FOR_A_DEFECT} schedules"))?;
    let start: String = wrong.chars().take(300).collect();
    println!("{defect:?}: {start}");
    Ok(())
}

fn main() -> ExitCode {
    catch_panics();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).map(|text| text.parse::<u64>().unwrap());
    let seeds = || {
        let from = number(2).unwrap_or(0);
        from..from + number(1).unwrap()
    };
    let asked = match arguments.first().map(String::as_str) {
        Some("seed") => Some(run(number(1).unwrap(), None, true).map(drop).map_err(Failed::from)),
        Some("schedules") => Some(histories(seeds())),
        Some("twice") => Some(replays(seeds())),
        _ => None,
    };
    if let Some(result) = asked {
        return match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(failed) => {
                eprintln!("{}", failed.message().unwrap_or_default());
                ExitCode::FAILURE
            }
        };
    }
    let mut arguments = Arguments::from_args();
    // Each trial uses all processors by itself.
    arguments.test_threads.get_or_insert(1);
    let mut trials = vec![
        Trial::test("every_answered_command_is_kept_under_all_failures", || {
            histories(0..if is_long() { SCHEDULES_OF_A_LONG_RUN } else { SCHEDULES })
        }),
        Trial::test("a_seed_replays_exactly", || replays(0..REPLAYED)),
    ];
    let found =
        |defect: Defect| Trial::test(format!("found::{defect:?}"), move || is_found(defect));
    trials.extend(Defect::ALL.map(found));
    libtest_mimic::run(&arguments, trials).exit_code()
}
