//! The end of a job before it is done.

use tokio::sync::oneshot;

use crate::CommandError;

/// Gets one message when the job must end.
pub(crate) type StopSignal = oneshot::Receiver<()>;

/// Runs a part of a job, unless the job must end.
pub(crate) async fn unless_stopped<T>(
    stop: &mut StopSignal,
    part: impl Future<Output = T>,
) -> Result<T, CommandError> {
    tokio::select! {
        biased;
        _ = stop => Err(interrupted()),
        done = part => Ok(done),
    }
}

pub(super) fn interrupted() -> CommandError {
    CommandError::unfinished("interrupted")
}
