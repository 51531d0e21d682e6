//! `vvm apps`: the applications of a storage.

mod check;

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use clap::{Args, Subcommand};
use clock::Clock;
use eventlog::{DeploymentError, Epoch, TrustLevel};
use ielections::{AcquireError, GiveUpReason};
use sysvvm::AppName;
use vvm::{ChangeLevelError, LevelStep, change_level};

use crate::{
    CommandError, NodeConfiguration,
    command_error::ExitReason,
    named_storage::OPEN_TIME,
    storage_args::StorageArgs,
    storage_target::StorageTarget,
    terminal::{print, say},
};

/// The help text of `vvm apps set-level`.
const SET_LEVEL_HELP: &str = "\
    Stop all nodes first, even those that wait for a seat: the command takes all seats, and gives them back at the end. If a \
    node was killed, the command waits until its lease has expired. To or from level 2 it also waits until late writes \
    have landed: half a minute on Cassandra, two minutes on DynamoDB. Level 2 may need a longer lease, and the command refuses \
    a configuration with a lease that is too short. After a change from level 2 on several servers of Cassandra, \
    wait until `nodetool listpendinghints` shows no hints on any server, or run `nodetool truncatehints` on each server. Then \
    run `nodetool repair` for the keyspace of the application on each server, before you start nodes. If the command is \
    killed, the level may or may not have changed, and its leases expire. Repeat it then: it says what is left to do.\n\n\
    Exit codes: 0 the application has the level; 2 wrong usage; 3 wrong configuration, a lease that is too short, or the \
    application does not exist or was never deployed; 4 the storage could not be reached, or a node uses the redb file; 6 a \
    node or another such command works; 7 the command stood still and lost its leases.";

#[derive(Debug, Subcommand)]
pub enum AppsCommand {
    /// List the records that break the rules of the configured tables.
    #[command(after_long_help = check::HELP)]
    Check(check::CheckArgs),
    /// Change the trust level of an application, while no node works.
    #[command(after_long_help = SET_LEVEL_HELP)]
    SetLevel(SetLevelArgs),
}

#[derive(Debug, Args)]
pub struct SetLevelArgs {
    /// The application.
    #[arg(value_name = "OWNER/NAME")]
    app: AppName,

    /// The trust level: 0, 1 or 2.
    #[arg(value_name = "LEVEL")]
    level: TrustLevel,

    /// The configuration file of the nodes. Without the option the defaults apply.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(crate) async fn run(
    command: AppsCommand,
    node: NodeConfiguration,
) -> Result<ExitCode, CommandError> {
    match command {
        AppsCommand::Check(args) => check::run(args, node).await,
        AppsCommand::SetLevel(args) => set_level(args, node).await,
    }
}

async fn set_level(
    SetLevelArgs { app, level, config }: SetLevelArgs,
    node: NodeConfiguration,
) -> Result<ExitCode, CommandError> {
    let advice = "set `trust_level` in the configuration of the node";
    let named = StorageArgs { storage: None, config };
    let storage = named.outside_memory(node, advice)?;
    let settings = (node.settings)(named.config.as_deref(), level)?;
    let clock = Clock::system();
    let deadline = clock.now() + OPEN_TIME;
    let driver = storage.open_existing(clock.clone(), deadline).await;
    let driver = driver.map_err(|error| storage.not_opened(&error, "stop the node"))?;
    let changed = change_level(Arc::clone(&driver), clock, &settings, &app, level, tell).await;
    driver.close().await;
    let changed = changed.map_err(|error| not_changed(&app, &storage.target, &error))?;
    let target = &storage.target;
    print(&match changed.from {
        from if from == level => format!("{app} in {target} has trust level {level}\n"),
        from => format!("the trust level of {app} in {target} is {level} now (it was {from})\n"),
    })?;
    if let Some(advice) = repair_advice(&app, target, level, changed.stray_before) {
        say(advice);
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the advice for servers of Cassandra that may have rows of level 2 which other servers do
/// not have. At other levels such a row can replace an acknowledged row when it comes up. Only
/// Cassandra knows how many servers have a keyspace.
///
/// The command cannot know whether an operator has followed the advice. So each later call repeats
/// it: an earlier call may have been killed before it said anything.
fn repair_advice(
    app: &AppName,
    target: &StorageTarget,
    level: TrustLevel,
    stray_before: Epoch,
) -> Option<String> {
    let is_cassandra = matches!(target, StorageTarget::Cassandra(_));
    (is_cassandra && level != TrustLevel::Two && stray_before > Epoch(0)).then(|| {
        format!(
            "if Cassandra has several servers, and you have not done this since the level was 2: before you start nodes, \
             wait until `nodetool listpendinghints` shows no hints on any server, or run `nodetool truncatehints` on each \
             server; then run `nodetool repair` for the keyspace of {app} on each server; otherwise a row that one server \
             alone has, or a hint, may replace an acknowledged row"
        )
    })
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
    let reason = match error {
        ChangeLevelError::System(sysvvm::Error::Storage(error)) => {
            return CommandError::storage(&what, error);
        }
        ChangeLevelError::Deployment(DeploymentError::Storage(error)) => {
            let what = format!(
                "the trust level of {app} in {target} may have changed: look at `vvm inspect apps`, or repeat the command"
            );
            return CommandError::storage(&what, error);
        }
        ChangeLevelError::NotAcquired(AcquireError::GaveUp(GiveUpReason::Unavailable)) => {
            ExitReason::Unreachable
        }
        ChangeLevelError::SeatHeld { .. }
        | ChangeLevelError::SeatsTaken
        | ChangeLevelError::System(sysvvm::Error::Owned { .. })
        | ChangeLevelError::Deployment(DeploymentError::ChangeCancelled(_)) => {
            ExitReason::NotAcquired
        }
        ChangeLevelError::LeaseLost(_) => ExitReason::LeadershipLost,
        ChangeLevelError::NoKeyspace(_)
        | ChangeLevelError::NotAcquired(_)
        | ChangeLevelError::Settings(_)
        | ChangeLevelError::Lease(_)
        | ChangeLevelError::Deployment(_)
        | ChangeLevelError::System(_) => ExitReason::Config,
    };
    CommandError::because(reason, &what, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_to_repair_is_given_for_as_long_as_rows_of_level_2_may_be_left_on_cassandra() {
        use TrustLevel::{One, Two, Zero};
        let target = |text: &str| text.parse::<StorageTarget>().unwrap();
        let app = "acme/shop".parse().unwrap();
        let advised = |text, level, epoch| repair_advice(&app, &target(text), level, Epoch(epoch));
        let cassandra = "cassandra:127.0.0.1:9042";
        for level in [Zero, One] {
            let said = advised(cassandra, level, 3).unwrap();
            // Hints that are pending could bring a row to a server after its repair.
            let parts =
                ["listpendinghints", "truncatehints", "repair` for the keyspace of acme/shop"];
            let places = parts.map(|part| said.find(part).unwrap());
            assert!(places.is_sorted(), "{said}");
            assert_eq!(advised(cassandra, level, 0), None, "the level never was 2");
            for other in ["redb:vvm.redb", "dynamodb:http://127.0.0.1:8000"] {
                assert_eq!(advised(other, level, 3), None, "{other}");
            }
        }
        assert_eq!(advised(cassandra, Two, 3), None);
    }
}
