//! `vvm elections verify`: the trials of elections over a storage, and how long a slot is without a leader.

use std::{process::ExitCode, sync::Arc, time::Duration};

use clock::Clock;
use futures::{StreamExt, stream};
use ielections::{
    Budget, Timing, TtlStore,
    suite::{Failure as TrialFailure, Suite, Takeover, Trial, trials},
};
use istorage::KeyspaceName;
use istorage_tck::{Conclusion, Progress, Report, Subject, TrialReport};
use serde::Serialize;
use sysvvm::ElectionRows;

use crate::{
    cli::VerifyElectionsArgs,
    failure::Failure,
    latency::as_seconds,
    progress::{progress_bar, show},
    report::Verification,
    say,
    scratch::{self, Connected, Stop, interrupted},
};

/// How long it may take to make a keyspace.
const SETUP: Duration = Duration::from_secs(60);

/// How many trials run at once: they mostly wait.
const SIDE_BY_SIDE: usize = 8;

/// How many takeovers are measured at once; more would measure each other.
const TAKEOVERS_SIDE_BY_SIDE: usize = 4;

/// How long slots were without a leader.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Takeovers {
    pub(crate) after: &'static str,
    pub(crate) times: usize,
    #[serde(rename = "median_seconds", serialize_with = "as_seconds")]
    pub(crate) median: Duration,
    #[serde(rename = "worst_seconds", serialize_with = "as_seconds")]
    pub(crate) worst: Duration,
}

/// Runs the command.
pub(crate) async fn run(args: VerifyElectionsArgs) -> Result<ExitCode, Failure> {
    let selected: Vec<&'static Trial> =
        trials().filter(|trial| trial.name().contains(&args.filter)).collect();
    if selected.is_empty() {
        return Err(Failure::usage(format!("no trial's name contains `{}`", args.filter)));
    }
    scratch::run(&args.storage, async |connected, stop| {
        verify(connected, &args, selected, stop).await
    })
    .await
}

async fn verify(
    connected: Connected,
    args: &VerifyElectionsArgs,
    selected: Vec<&'static Trial>,
    stop: &mut Stop,
) -> Result<ExitCode, Failure> {
    let (clock, storage) = (connected.clock.clone(), connected.target.to_string());
    let nodes = nodes(&connected).await.map_err(|error| {
        Failure::storage(&format!("cannot make a keyspace in {storage}"), &error)
    })?;
    let timing = Timing::of(Duration::from_secs(args.lease));
    let delay = nodes[0].expiry_delay();
    let budget =
        Budget::new(timing, delay).map_err(|error| Failure::usage(format!("--lease: {error}")))?;
    let suite = Suite::new(nodes, clock.clone());
    let report = tokio::select! {
        biased;
        _ = &mut *stop => return Err(interrupted()),
        report = run_trials(&suite, selected, &clock) => report,
    };
    let mut verification = Verification::new(storage, report);
    let measured = tokio::select! {
        biased;
        _ = &mut *stop => Err(interrupted()),
        measured = measure(&suite, timing, args.takeovers, &mut verification.takeovers) => measured,
    };
    // Whatever goes wrong from here on, and while cleaning up: what was found is told.
    verification.advice = vec![format!("{budget}.")];
    let printed = verification.print(args.json);
    printed.map_err(|error| Failure::unfinished(format!("cannot print: {error}")))?;
    measured?;
    match verification.report.failed() {
        0 => Ok(ExitCode::SUCCESS),
        _ => Ok(ExitCode::FAILURE),
    }
}

/// Two ways to one keyspace, by nodes whose calendars are five seconds apart where each has a connection of its own.
async fn nodes(connected: &Connected) -> istorage::Result<Vec<Arc<dyn TtlStore>>> {
    let clock = &connected.clock;
    let soon = || clock.now() + SETUP;
    let keyspace = KeyspaceName::new(format!("elections_{:016x}", clock.random()))?;
    let drivers = [connected.node(0).await?, connected.node(5_000).await?];
    drivers[0].create(&keyspace, soon()).await?;
    say(format!("scratch keyspace: {keyspace}"));
    let mut nodes: Vec<Arc<dyn TtlStore>> = Vec::new();
    for driver in &drivers {
        let storage = driver.open(&keyspace, soon()).await?.ok_or_else(|| {
            istorage::Error::corrupt(format!("{keyspace} was made and is not there"))
        })?;
        nodes.push(Arc::new(ElectionRows::new(storage, clock.clone())));
    }
    Ok(nodes)
}

async fn run_trials(suite: &Suite, selected: Vec<&'static Trial>, clock: &Clock) -> Report {
    let bar = progress_bar(selected.len());
    let start = clock.now();
    let run = async |trial: &'static Trial| {
        show(&bar, Progress::Started(trial.name()));
        let start = clock.now();
        let conclusion = match suite.run(trial).await {
            Ok(()) => Conclusion::Passed,
            Err(failure) => Conclusion::Failed(failure.to_string()),
        };
        let report = TrialReport { name: trial.name(), conclusion, took: clock.now() - start };
        show(&bar, Progress::Finished(&report));
        report
    };
    let reports = stream::iter(selected.into_iter().map(run)).buffered(SIDE_BY_SIDE);
    let trials = reports.collect().await;
    bar.finish_and_clear();
    Report { trials, took: clock.now() - start }
}

async fn measure(
    suite: &Suite,
    timing: Timing,
    times: u16,
    takeovers: &mut Vec<Takeovers>,
) -> Result<(), Failure> {
    let kinds =
        [(Takeover::AfterRelease, "after a release"), (Takeover::AfterCrash, "after a crash")];
    for (kind, after) in kinds.into_iter().filter(|_| times > 0) {
        say(format!("measuring takeovers {after}, {times} times"));
        let rounds = (0..times).map(|_| suite.take_over(kind, timing));
        let took = stream::iter(rounds).buffer_unordered(TAKEOVERS_SIDE_BY_SIDE);
        let took: Vec<Result<Duration, TrialFailure>> = took.collect().await;
        let failed = |failure| Failure::unfinished(format!("a takeover {after}: {failure}"));
        let mut took =
            took.into_iter().collect::<Result<Vec<_>, TrialFailure>>().map_err(failed)?;
        took.sort_unstable();
        let at = |n: usize| took.get(n).copied().unwrap_or_default();
        let (times, median) = (took.len(), at(took.len() / 2));
        takeovers.push(Takeovers { after, times, median, worst: at(times - 1) });
    }
    Ok(())
}
