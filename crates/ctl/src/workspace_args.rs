//! The arguments of commands that ask a node about a workspace.

use clap::Args;
use sysvvm::AppName;

use crate::client::ConnectionArgs;

/// A workspace, how its node is reached, and how the answer is shown.
#[derive(Debug, Args)]
pub(crate) struct WorkspaceArgs {
    /// The application.
    #[arg(long, value_name = "OWNER/NAME", default_value = "demo/shop")]
    pub(crate) app: AppName,

    /// The workspace.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) ws: u64,

    /// Print the result as JSON.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}
