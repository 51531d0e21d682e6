//! Many histories of a partition: leaders, clients, a database, and all kinds of faults between
//! them.
//!
//! Each history follows from its seed alone. A history runs on one thread and has its own clock.
//! The history decides when time passes, when calls are sent, and when calls arrive. A seed that
//! fails is printed, and `cargo test -p processor --test simulation -- seed 4711` prints the steps
//! of its history; `-- seed 4711 NoOrder` prints those with a defect. `-- schedules 100000` runs
//! that many histories. With a second number, as in `-- schedules 100000 4711`, they start with
//! that seed. `-- reading-back 6000` runs those of the 6,000 where rows are put and read back. `--
//! twice 1000` runs each history twice. `-- find 6000 NoOrder` searches the first of 6,000
//! histories that finds the defect.

#![allow(clippy::unwrap_used)]

mod call_turns;
mod clients;
mod database;
mod defects;
mod earlier_events;
mod gated_storage;
mod history;
mod lost_rows;
mod obstacles;
mod open_writes;
mod plan;
mod readers;
mod replicas;

use std::{
    cell::{Cell, RefCell},
    ops::Range,
    panic,
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use call_turns::Dice;
use defects::Defect;
use history::HistoryReport;
use libtest_mimic::{Arguments, Failed, Trial};
use plan::Plan;
use tck::trial::is_long;

/// The number of histories, and the number in a long run.
const SCHEDULES: u64 = 1_500;
const SCHEDULES_OF_A_LONG_RUN: u64 = 6_000;

/// The seeds of the long run of those histories alone where rows are put and read back, and the
/// number of calls that these histories make at least.
const READING_BACK_SEEDS: Range<u64> = 6_000..106_000;
const READING_BACK_CALLS: u64 = 1_000_000;

/// Each lie must be found within this number of histories.
const SCHEDULES_FOR_A_DEFECT: u64 = 2_000;

/// The number of histories where servers lose a version of a record.
const LOST_ROWS: u64 = 200;

/// The number of seeds that are run twice.
const REPLAYED: u64 = 200;

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

/// The histories that are run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    All,
    /// Only those where rows are put and read back.
    ReadingBack,
}

fn all(seeds: Range<u64>, kind: Kind) -> Result<HistoryReport, Failed> {
    let next = AtomicU64::new(seeds.start);
    let threads = thread::available_parallelism().map_or(1, |n| n.get());
    let work = || {
        let mut sum = HistoryReport::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return Ok(sum);
            }
            let reads_back = || Plan::of(seed, &Dice::of(seed), None).reads_back();
            if kind == Kind::ReadingBack && !reads_back() {
                continue;
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

/// Runs the histories of seeds, and prints what was done in them.
fn report(seeds: Range<u64>, kind: Kind) -> Result<HistoryReport, Failed> {
    let report = all(seeds, kind)?;
    let HistoryReport { schedules, done, read, logs, lists, events, leaders, calls, .. } = report;
    let HistoryReport { calls_with_reading_back, odd_writes, obstacles, .. } = report;
    println!(
        "{schedules} schedules, {leaders} leaders, {events} events, {done} commands done, {read} reads, \
         {logs} logs and {lists} lists to their ends, {obstacles} obstacles, {calls} calls of the \
         storage, {calls_with_reading_back} of them where rows are put and read back, with \
         {odd_writes} conditional writes of odd rows"
    );
    Ok(report)
}

fn histories(seeds: Range<u64>) -> Result<(), Failed> {
    let report = report(seeds, Kind::All)?;
    let HistoryReport { schedules, done, read, logs, lists, .. } = report;
    if schedules >= 100 {
        check_odd_rows(&report)?;
    }
    if schedules >= 100 && (logs == 0 || lists == 0) {
        return Err("no log, or no list, was ever read to its end".into());
    }
    if schedules >= 100 && ((done as u64) < 3 * schedules || (read as u64) < schedules) {
        return Err("hardly anything was ever done or read".into());
    }
    Ok(())
}

fn check_odd_rows(report: &HistoryReport) -> Result<(), Failed> {
    match report.odd_writes == 0 || report.obstacles == 0 {
        true => Err("no row was ever odd".into()),
        false => Ok(()),
    }
}

/// Runs histories where rows are put and read back. A long run makes many calls in them.
fn reading_back() -> Result<(), Failed> {
    let seeds = if is_long() { READING_BACK_SEEDS } else { 6_000..6_600 };
    let report = report(seeds, Kind::ReadingBack)?;
    check_odd_rows(&report)?;
    if is_long() && report.calls_with_reading_back < READING_BACK_CALLS {
        return Err("too few calls were made".into());
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

/// Runs the histories where servers lose an acknowledged version of a record.
fn lost_rows() -> Result<(), Failed> {
    let mut stopped = 0;
    for seed in 0..LOST_ROWS {
        stopped += u64::from(lost_rows::run(seed, false)?);
    }
    match stopped {
        0 => Err("no leader ever met the older version".into()),
        _ => Ok(()),
    }
}

/// A leader that reads linearizably, which repairs nothing, must be found.
fn lost_rows_find_reads_without_repair() -> Result<(), Failed> {
    let found = (0..LOST_ROWS).find_map(|seed| lost_rows::run(seed, true).err());
    let wrong = found.ok_or("no history found that a linearizable read repairs nothing")?;
    println!("{}", wrong.message().unwrap_or_default());
    Ok(())
}

fn is_found(defect: Defect) -> Result<(), Failed> {
    let first = defect.first_seed();
    find(defect, first..first + SCHEDULES_FOR_A_DEFECT)
}

/// Runs the histories of seeds with a defect, up to the first one that finds it.
fn find(defect: Defect, seeds: Range<u64>) -> Result<(), Failed> {
    let mut done = 0;
    let found = seeds
        .clone()
        .find_map(|seed| run(seed, Some(defect), false).map(|report| done += report.done).err());
    // The number tells whether the histories do anything with the defect.
    let wrong = found.ok_or_else(|| {
        format!("the schedules {seeds:?} with {done} commands did not find the defect")
    })?;
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
    let named = |name: &String| Defect::ALL.into_iter().find(|it| format!("{it:?}") == *name);
    let defect = || arguments.get(2).map(|name| named(name).unwrap());
    let asked = match arguments.first().map(String::as_str) {
        Some("seed") => {
            Some(run(number(1).unwrap(), defect(), true).map(drop).map_err(Failed::from))
        }
        Some("find") => Some(find(defect().unwrap(), 0..number(1).unwrap())),
        Some("schedules") => Some(histories(seeds())),
        Some("reading-back") => Some(report(seeds(), Kind::ReadingBack).map(drop)),
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
        Trial::test("rows_that_are_read_back_are_kept_under_all_failures", reading_back),
        Trial::test("a_lost_version_stops_the_partition_until_a_quorum_has_it", lost_rows),
        Trial::test(
            "found::a_lost_version_that_is_read_without_repair",
            lost_rows_find_reads_without_repair,
        ),
        Trial::test("a_seed_replays_exactly", || replays(0..REPLAYED)),
    ];
    let found =
        |defect: Defect| Trial::test(format!("found::{defect:?}"), move || is_found(defect));
    trials.extend(Defect::ALL.map(found));
    libtest_mimic::run(&arguments, trials).exit_code()
}
