//! `cargo xtask test`: all checks and all tests, with servers of its own.

use std::{env, thread, time::Duration};

use crate::{
    error::{Error, ErrorContext, Result, failed},
    examples, interrupt, rounds,
    servers::{OwnServers, Purpose, ServerKind, Variables},
    steps::Steps,
    suites::{self, Suite, SuiteRun},
    tidy,
};

/// The variable that asks suites for their long rounds.
const LONG: &str = "VVM_TEST_LONG";

/// The number of tests that run at once in a binary with the harness of Rust. A binary with its own
/// `main` ignores the variable.
const THREADS: &str = "RUST_TEST_THREADS";
/// Most tests wait, so a machine with few processors runs this many at once.
const MIN_THREADS: usize = 8;

/// The variable that names this program to suites. With it they need no cargo, which waits while
/// another cargo builds.
const XTASK: &str = "VVM_TEST_XTASK";

/// The longest time of a suite without its long rounds.
const SUITE_LIMIT: Duration = Duration::from_secs(20 * 60);

/// Runs all checks and all tests. With `quick` no server is started, and the suites that need one
/// are ignored. With `long` the suites run their long rounds.
pub(crate) fn test(quick: bool, long: bool, arguments: &[String]) -> Result<()> {
    let mut steps = Steps::default();
    let mut totals = TestTotals::default();
    let result = run_steps(&mut steps, quick, &SuiteOptions { long, arguments }, &mut totals);
    eprint!("\n{}", steps.summary());
    // A log of a whole run is long, so its end names the tests that failed.
    for test in &totals.failures {
        println!("failed: {test}");
    }
    if totals != TestTotals::default() {
        // The line comes last, in a form that other programs read.
        println!("{} passed, {} failed, {} skipped", totals.passed, totals.failed, totals.skipped);
    }
    result
}

/// How the suites are run.
struct SuiteOptions<'a> {
    long: bool,
    /// The arguments for the test binaries.
    arguments: &'a [String],
}

fn run_steps(
    steps: &mut Steps,
    quick: bool,
    options: &SuiteOptions<'_>,
    totals: &mut TestTotals,
) -> Result<()> {
    tidy::run_quick_steps(steps)?;
    if quick {
        let built = steps.run("build the tests", suites::build)?;
        return run_suites(steps, &built, &Vec::new(), options, totals);
    }
    let servers = OwnServers::new()?;
    let (built, variables) = build_and_start(steps, &servers)?;
    let tested = run_suites(steps, &built, &variables, options, totals);
    let tested = match (tested, servers.check()) {
        (Err(Error::Interrupted), _) => Err(Error::Interrupted),
        // A server that died explains the failures.
        (Err(failures), Err(ended)) => failed(format!("{ended}\n{failures}")),
        (tested, running) => tested.and(running),
    };
    if !options.arguments.is_empty() {
        return tested;
    }
    // One run shows the failures of both.
    tested.and(steps.run("run rounds of faults", || rounds::run_sample(&variables)))
}

/// Builds the tests while the servers start: the servers mostly wait, and the build needs the
/// processors.
fn build_and_start(steps: &mut Steps, servers: &OwnServers) -> Result<(Vec<Suite>, Variables)> {
    thread::scope(|scope| {
        let starting = scope.spawn(|| servers.start(&ServerKind::ALL, Purpose::Tests));
        let built = steps.run("build the tests", suites::build);
        if built.is_err() {
            interrupt::give_up();
        }
        let started = steps.run("start the servers", || {
            starting
                .join()
                .unwrap_or_else(|_| failed("the thread that starts the servers panicked"))
        });
        // If one side fails, the other side gives up. The result is the error of the side that
        // failed.
        match (built, started) {
            (Ok(built), started) => started.map(|variables| (built, variables)),
            (Err(Error::Interrupted), Err(error)) | (Err(error), _) => Err(error),
        }
    })
}

fn run_suites(
    steps: &mut Steps,
    built: &[Suite],
    servers: &Variables,
    options: &SuiteOptions<'_>,
    totals: &mut TestTotals,
) -> Result<()> {
    if options.arguments.is_empty() {
        steps.run("run the examples", examples::run)?;
    }
    let mut variables: Vec<_> =
        ServerKind::ALL.iter().map(|kind| (kind.variable(), None)).collect();
    variables.extend(servers.iter().map(|(name, address)| (*name, Some(address.clone()))));
    if env::var_os(THREADS).is_none() {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        variables.push((THREADS, Some(processors.max(MIN_THREADS).to_string())));
    }
    let this = env::current_exe().context("the path of this program is unknown")?;
    variables.push((XTASK, Some(this.to_string_lossy().into_owned())));
    if options.long {
        variables.push((LONG, Some("1".to_owned())));
    }
    let limit = (!options.long).then_some(SUITE_LIMIT);
    let run = SuiteRun { arguments: options.arguments, variables, limit };
    let checks = tidy::compiling()?;
    steps.run("run the tests", || run.run(built, &checks, |line| totals.add(line)))
}

/// The numbers of tests, added up over all test binaries, and the names of those that failed.
#[derive(Debug, Default, PartialEq, Eq)]
struct TestTotals {
    passed: u64,
    failed: u64,
    skipped: u64,
    failures: Vec<String>,
}

impl TestTotals {
    /// Adds the closing line of a test binary, or the line of a test that failed. Other lines are
    /// ignored.
    fn add(&mut self, line: &str) {
        let test = line.strip_prefix("test ");
        if let Some(name) = test.and_then(|test| test.strip_suffix(" ... FAILED")) {
            self.failures.push(name.trim_end().to_owned());
            return;
        }
        let Some((_, counts)) = line.split_once("test result: ") else {
            return;
        };
        let counts = counts.split_once(". ").map_or(counts, |(_, counts)| counts);
        for count in counts.split(';') {
            match count.trim().split_once(' ') {
                Some((number, "passed")) => self.passed += number.parse().unwrap_or(0),
                Some((number, "failed")) => self.failed += number.parse().unwrap_or(0),
                Some((number, "ignored")) => self.skipped += number.parse().unwrap_or(0),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_test_binaries_are_added_up() {
        let mut totals = TestTotals::default();
        for line in [
            "test name ... ok",
            "test redb::writes::a_row_stays           ... FAILED",
            "test result: ok. 5 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.02s",
            "test result: FAILED. 30 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 3s",
        ] {
            totals.add(line);
        }
        let failures = vec!["redb::writes::a_row_stays".to_owned()];
        assert_eq!(totals, TestTotals { passed: 35, failed: 1, skipped: 2, failures });
    }
}
