//! `vvm elections verify`: the trials of elections over a storage, and the time of a takeover.

use std::{process::ExitCode, sync::Arc, time::Duration};

use clap::{Args, Subcommand};
use futures::{StreamExt, TryStreamExt, stream};
use ielections::{Budget, Timing, TtlStore};
use istorage::KeyspaceName;
use sysvvm::System;
use tck::elections::{ElectionsContext, Suite, Takeover, trials};
use tck::storage::Subject;
use tck::trial::Trial;

use crate::{
    CommandError, NodeConfiguration, StorageArgs,
    terminal::{progress_bar, say, step},
    verify::{
        ConnectedStorage, StopSignal, TakeoverTimes, VERIFY_EXIT_HELP, Verification, filtered,
        run_trials, scratch, times, unless_stopped,
    },
};

#[derive(Debug, Subcommand)]
pub enum ElectionsCommand {
    /// Prove elections over a storage: run their suite, and measure how soon another node takes
    /// over.
    #[command(after_long_help = VERIFY_EXIT_HELP)]
    Verify(VerifyElectionsArgs),
}

#[derive(Debug, Args)]
pub struct VerifyElectionsArgs {
    #[command(flatten)]
    storage: StorageArgs,

    /// Run only the trials with this text in their names.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    filter: String,

    /// The number of takeovers to measure after a release, and the same number after a crash. 0
    /// measures none.
    #[arg(long, value_name = "N", default_value_t = 10)]
    takeovers: u16,

    /// The length of the leases of measured takeovers, in seconds. The trials choose their own
    /// lengths.
    #[arg(long, value_name = "SECONDS", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=3600))]
    lease: u64,

    /// Print the result and the logs as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The most time to make a keyspace.
const SETUP: Duration = Duration::from_secs(60);

/// The number of takeovers that are measured at once. With more, each would slow down the others.
const TAKEOVERS_SIDE_BY_SIDE: usize = 4;

pub(crate) async fn run(
    ElectionsCommand::Verify(args): ElectionsCommand,
    node: NodeConfiguration,
) -> Result<ExitCode, CommandError> {
    let selected = filtered(trials(), &args.filter)?;
    scratch::run(&args.storage, node, async |connected, stop| {
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
