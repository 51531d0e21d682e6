//! The arguments of the commands for sequences.

use clap::{Args, Subcommand};

use super::{ConnectionArgs, NodeAddress};

#[derive(Debug, Subcommand)]
pub(crate) enum SequencesCommand {
    /// Show the stored numbers of a workspace: the last one of each sequence, and the last event of
    /// the partition that the next start need not read. The numbers that were given may be higher,
    /// because they are stored a moment later.
    Show(SequencesArgs),
}

impl SequencesCommand {
    pub(crate) fn args(&self) -> &SequencesArgs {
        let SequencesCommand::Show(args) = self;
        args
    }
}

#[derive(Debug, Args)]
pub(crate) struct SequencesArgs {
    /// The admin endpoint of the node that owns the partition. The default is the address in
    /// VVM__ADMIN__LISTEN, or else 127.0.0.1:55555.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin: Option<NodeAddress>,

    /// The application.
    #[arg(long, value_name = "OWNER/NAME", default_value = "demo/shop")]
    pub(crate) app: String,

    /// The workspace.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) ws: u64,

    /// Print the result as JSON.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}
