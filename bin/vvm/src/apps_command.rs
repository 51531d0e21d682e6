//! `vvm apps`: the applications of a storage.

use std::{process::ExitCode, sync::Arc};

use clock::Clock;
use eventlog::DeploymentError;
use ielections::{AcquireError, GiveUpReason};
use sysvvm::AppName;
use vvm::{ChangeLevelError, LevelStep, change_level};

use crate::{
    cli::{AppsCommand, ServeArgs, SetLevelArgs},
    command_error::CommandError,
    named_storage::{NamedStorage, OPEN_TIME},
    print, say, serve,
    storage_target::StorageTarget,
};

/// Runs the command.
pub(crate) async fn run(command: AppsCommand) -> Result<ExitCode, CommandError> {
    match command {
        AppsCommand::SetLevel(args) => set_level(args).await,
    }
}

async fn set_level(args: SetLevelArgs) -> Result<ExitCode, CommandError> {
    let SetLevelArgs { app, level, config } = args;
    let config = serve::configuration(&ServeArgs { config, ..ServeArgs::default() })?;
    let advice = "set `trust_level` in the configuration of the node";
    let storage = NamedStorage::of_node(&config, advice)?;
    let settings = serve::settings_for(&config, &storage.target, level)?;
    let clock = Clock::system();
    let deadline = clock.now() + OPEN_TIME;
    let driver = storage.open_existing(clock.clone(), deadline).await;
    let driver = driver.map_err(|error| storage.not_opened(&error, "stop the node"))?;
    let changed = change_level(Arc::clone(&driver), clock, &settings, (&app, level), tell).await;
    driver.close().await;
    let changed = changed.map_err(|error| not_changed(&app, &storage.target, &error))?;
    let target = &storage.target;
    print(&match changed.from {
        from if from == level => format!("{app} in {target} has trust level {level}\n"),
        from => format!("the trust level of {app} in {target} is {level} now (it was {from})\n"),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Tells what the command waits for.
fn tell(step: LevelStep) {
    say(match step {
        LevelStep::WaitsForLeases { at_most } => format!(
            "waiting up to {} s for the leases of nodes that were killed",
            at_most.as_secs() + 1
        ),
        LevelStep::WaitsForLateWrites(time) => {
            format!("waiting {} s for late writes", time.as_secs_f64().ceil())
        }
    });
}

fn not_changed(app: &AppName, target: &StorageTarget, error: &ChangeLevelError) -> CommandError {
    let what = format!("the trust level of {app} was not changed in {target}");
    match error {
        ChangeLevelError::System(sysvvm::Error::Storage(error)) => {
            CommandError::storage(&what, error)
        }
        ChangeLevelError::Deployment(DeploymentError::Storage(error)) => {
            let what = format!(
                "the trust level of {app} in {target} may have changed: look at `vvm inspect apps`, or repeat the command"
            );
            CommandError::storage(&what, error)
        }
        ChangeLevelError::NotAcquired(AcquireError::GaveUp(GiveUpReason::Unavailable)) => {
            CommandError::not_reached(&what, error)
        }
        ChangeLevelError::SeatHeld { .. }
        | ChangeLevelError::SeatsTaken
        | ChangeLevelError::System(sysvvm::Error::Owned { .. })
        | ChangeLevelError::Deployment(DeploymentError::ChangeCancelled(_)) => {
            CommandError::not_acquired(&what, error)
        }
        ChangeLevelError::LeaseLost(_) => CommandError::lease_lost(&what, error),
        ChangeLevelError::NoKeyspace(_)
        | ChangeLevelError::NotAcquired(_)
        | ChangeLevelError::Settings(_)
        | ChangeLevelError::Lease(_)
        | ChangeLevelError::Deployment(_)
        | ChangeLevelError::System(_) => CommandError::refused(&what, error),
    }
}
