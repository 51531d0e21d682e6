//! The arguments of the commands for applications.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use eventlog::TrustLevel;
use sysvvm::AppName;

/// The help text of `vvm apps set-level`.
pub(crate) const SET_LEVEL_HELP: &str = "\
    Stop all nodes first, those that wait for a seat too: the command takes all seats, and gives them back at the end. After a \
    node that was killed the command waits until its lease has expired. To or from level 2 it also waits until late writes \
    have landed: half a minute on Cassandra, two minutes on DynamoDB. Level 2 may need a longer lease, and the command refuses \
    a configuration with a lease that is too short. After a change from level 2 on several servers of Cassandra, \
    wait until `nodetool listpendinghints` shows no hints on any server, or run `nodetool truncatehints` on each server. Then \
    run `nodetool repair` for the keyspace of the application on each server, before you start nodes. If the command is \
    killed, the level has changed or not, and its leases expire. Repeat it then: it says what is left to do.\n\n\
    Exit codes: 0 the application has the level; 2 wrong usage; 3 wrong configuration, a lease that is too short, or the \
    application does not exist or was never deployed; 4 the storage could not be reached, or a node uses the redb file; 6 a \
    node or another such command works; 7 the command stood still and lost its leases.";

#[derive(Debug, Subcommand)]
pub(crate) enum AppsCommand {
    /// Change the trust level of an application, while no node works.
    #[command(after_long_help = SET_LEVEL_HELP)]
    SetLevel(SetLevelArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SetLevelArgs {
    /// The application.
    #[arg(value_name = "OWNER/NAME")]
    pub(crate) app: AppName,

    /// The trust level: 0, 1 or 2.
    #[arg(value_name = "LEVEL")]
    pub(crate) level: TrustLevel,

    /// The configuration file of the nodes. Without the option the defaults apply.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}
