//! `vvm elections verify`: the trials of elections over a storage, and the time of a takeover.

use std::{process::ExitCode, sync::Arc, time::Duration};

use futures::{StreamExt, TryStreamExt, stream};
use ielections::{Budget, Timing, TtlStore};
use istorage::KeyspaceName;
use serde::Serialize;
use sysvvm::System;
use tck::elections::{ElectionsContext, Suite, Takeover, trials};
use tck::storage::Subject;
use tck::trial::Trial;

use crate::{
    cli::{VerifyElectionsArgs, filtered},
    command_error::CommandError,
    latency::as_seconds,
    progress::{progress_bar, run_trials, step, times},
    report::Verification,
    say,
    scratch::{self, ConnectedStorage, StopSignal, unless_stopped},
};

/// The most time to make a keyspace.
const SETUP: Duration = Duration::from_secs(60);

/// The number of takeovers that are measured at once. With more, each would slow down the others.
const TAKEOVERS_SIDE_BY_SIDE: usize = 4;

/// The times in which seats were without a leader.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TakeoverTimes {
    pub(crate) after: &'static str,
    pub(crate) times: u16,
    #[serde(rename = "median_seconds", serialize_with = "as_seconds")]
    pub(crate) median: Duration,
    #[serde(rename = "worst_seconds", serialize_with = "as_seconds")]
    pub(crate) worst: Duration,
}

/// Runs the command.
pub(crate) async fn run(args: VerifyElectionsArgs) -> Result<ExitCode, CommandError> {
    let selected = filtered(trials(), &args.filter)?;
    scratch::run(&args.storage, async |connected, stop| {
        verify(connected, &args, selected, stop).await
    })
    .await
}

async fn verify(
    connected: ConnectedStorage,
    args: &VerifyElectionsArgs,
    selected: Vec<&'static Trial<ElectionsContext>>,
    stop: &mut StopSignal,
) -> Result<ExitCode, CommandError> {
    let (clock, storage) = (connected.clock.clone(), connected.target.to_string());
    let nodes = nodes(&connected).await.map_err(|error| {
        CommandError::system(&format!("cannot make a keyspace in {storage}"), &error)
    })?;
    let timing = Timing::of(Duration::from_secs(args.lease));
    let budget = Budget::of_store(timing, &*nodes[0])
        .map_err(|error| CommandError::usage(format!("--lease: {error}")))?;
    let suite = Suite::new(nodes, clock.clone());
    let report = unless_stopped(stop, run_trials(&suite, selected)).await?;
    let mut verification = Verification::new(storage, report);
    verification.lease = Some(budget);
    let measuring = measure(&suite, timing, args.takeovers, &mut verification.takeovers);
    let measured = unless_stopped(stop, measuring).await.flatten();
    verification.conclude(args.json, measured)
}

/// Opens one system keyspace twice, for two nodes. If each node has its own connection, their wall
/// clocks are five seconds apart.
async fn nodes(connected: &ConnectedStorage) -> sysvvm::Result<Vec<Arc<dyn TtlStore>>> {
    let clock = &connected.clock;
    let keyspace = KeyspaceName::new(format!("elections_{:016x}", clock.random()))?;
    let mut nodes: Vec<Arc<dyn TtlStore>> = Vec::new();
    for calendar_ahead_ms in [0, 5_000] {
        let driver = connected.node(calendar_ahead_ms).await?;
        let deadline = clock.now() + SETUP;
        let system = System::open(driver, keyspace.clone(), clock.clone(), deadline).await?;
        nodes.push(Arc::new(system.elections()));
    }
    say(format!("scratch keyspace: {keyspace}"));
    Ok(nodes)
}

async fn measure(
    suite: &Suite,
    timing: Timing,
    rounds: u16,
    takeovers: &mut Vec<TakeoverTimes>,
) -> Result<(), CommandError> {
    let kinds =
        [(Takeover::AfterRelease, "after a release"), (Takeover::AfterCrash, "after a crash")];
    for (kind, after) in kinds.into_iter().filter(|_| rounds > 0) {
        let lease = timing.duration.as_secs();
        say(format!("measuring takeovers {after}, {}, with leases of {lease} s", times(rounds)));
        let bar = progress_bar(rounds.into());
        let measured = stream::iter((0..rounds).map(|_| suite.take_over(kind, timing)))
            .buffer_unordered(TAKEOVERS_SIDE_BY_SIDE)
            .inspect_ok(|took| step(&bar, format!("a takeover {after}: {took:.2?}")))
            .try_collect::<Vec<Duration>>()
            .await;
        bar.finish_and_clear();
        let failed = |failure| CommandError::unfinished(format!("a takeover {after}: {failure}"));
        let mut took = measured.map_err(failed)?;
        took.sort_unstable();
        let (low, high) = (took[(took.len() - 1) / 2], took[took.len() / 2]);
        let (median, worst) = ((low + high) / 2, took[took.len() - 1]);
        takeovers.push(TakeoverTimes { after, times: rounds, median, worst });
    }
    Ok(())
}
