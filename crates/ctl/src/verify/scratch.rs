//! A storage that a command uses for a while: the command connects, may be stopped by signals, and
//! leaves the storage as it was.

use std::process::ExitCode;

use tokio::sync::oneshot;

use super::{scratch_run::ScratchRun, stop::StopSignal, subject::ConnectedStorage};
use crate::{
    CommandError, NodeConfiguration, StorageArgs,
    terminal::{Signals, say},
};

/// Does a job on a storage. At the first signal the job ends, and everything that it made is
/// removed. At the second signal the process ends at once.
pub(crate) async fn run(
    args: &StorageArgs,
    node: NodeConfiguration,
    job: impl AsyncFnOnce(ConnectedStorage, &mut StopSignal) -> Result<ExitCode, CommandError>,
) -> Result<ExitCode, CommandError> {
    // Listen for signals before anything is made. Otherwise an early signal ends the process, and
    // the things that it made stay.
    let mut signals = Signals::install().map_err(CommandError::runtime)?;
    let run = ScratchRun::prepare(args, node)?;
    let (stop, stopped) = oneshot::channel();
    let mut done = std::pin::pin!(run.connect_and(job, stopped));
    let signal = tokio::select! {
        done = &mut done => return done,
        signal = signals.next() => signal,
    };
    say(format!("{signal} received: stopping the trials and removing {}", run.made()));
    say("a second signal ends the process at once, without cleanup");
    // If the job is over already, nothing receives the message: the cleanup is under way.
    stop.send(()).ok();
    tokio::select! {
        done = &mut done => done,
        signal = signals.next() => {
            Err(CommandError::unfinished(format!("{signal} received: left at once{}", run.may_be_left())))
        }
    }
}
