//! `vvm storage verify`: the trials, the latencies, the difference of the clocks, and advice.

use std::{process::ExitCode, sync::Arc};

use clap::Args;
use clock::Clock;
use tck::storage::{ScratchKeyspace, StorageContext, trials};
use tck::trial::Trial;

use crate::{
    CommandError, NodeConfiguration, StorageArgs, clock_skew,
    command_error::ExitReason,
    terminal::say,
    verify::{
        ConnectedStorage, StopSignal, Verification, advice, filtered, latency, run_trials, scratch,
        times, unless_stopped,
    },
};

#[derive(Debug, Args)]
pub struct VerifyArgs {
    #[command(flatten)]
    storage: StorageArgs,

    /// Run only the trials with this text in their names.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    filter: String,

    /// The number of calls of each operation to measure. 0 measures nothing.
    #[arg(long, value_name = "N", default_value_t = 200)]
    calls: u16,

    /// Print the result and the logs as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) async fn run(
    args: VerifyArgs,
    node: NodeConfiguration,
) -> Result<ExitCode, CommandError> {
    let selected = filtered(trials(), &args.filter)?;
    scratch::run(&args.storage, node, async |connected, stop| {
        verify(connected, &args, selected, stop).await
    })
    .await
}

/// Runs the trials, measures, and prints the result.
async fn verify(
    connected: ConnectedStorage,
    args: &VerifyArgs,
    selected: Vec<&'static Trial<StorageContext>>,
    stop: &mut StopSignal,
) -> Result<ExitCode, CommandError> {
    let (clock, keyspaces) = (connected.clock.clone(), connected.keyspaces.clone());
    let storage = connected.target.to_string();
    // A signal does not interrupt this call: afterwards it would be unknown whether the keyspace
    // exists.
    let scratch = ScratchKeyspace::create(Arc::new(connected)).await.map_err(|error| {
        CommandError::storage(&format!("cannot make a keyspace in {storage}"), &error)
    })?;
    for keyspace in keyspaces.recorded() {
        say(format!("scratch keyspace: {keyspace}; others of this run begin with its name"));
    }
    let report = unless_stopped(stop, run_trials(&scratch, selected)).await?;
    let mut verification = Verification::new(storage, report);
    let measuring = measure(&scratch, &clock, args.calls, &mut verification);
    let measured = unless_stopped(stop, measuring).await.flatten();
    verification.conclude(args.json, measured)
}

async fn measure(
    scratch: &ScratchKeyspace,
    clock: &Clock,
    calls: u16,
    verification: &mut Verification,
) -> Result<(), CommandError> {
    let storage = scratch.storage();
    if calls > 0 {
        say(format!("measuring each operation {}", times(calls)));
        let measured = latency::measure(Arc::clone(&storage), clock.clone(), calls).await;
        verification.latencies = measured.map_err(unfinished)?;
    }
    verification.skew = clock_skew::measure(&*storage, clock).await.map_err(unfinished)?;
    verification.advice =
        advice(&storage.capabilities(), &verification.latencies, verification.skew);
    Ok(())
}

fn unfinished(error: istorage::Error) -> CommandError {
    CommandError::because(ExitReason::Failed, "measuring failed", &error)
}
