//! The arguments of the commands for document numbers.

use clap::{Args, Subcommand};

use super::{ConnectionArgs, NodeAddress};

#[derive(Debug, Subcommand)]
pub(crate) enum NumbersCommand {
    /// List the series of an application.
    List(NumbersArgs),
    /// Show a series, and the number that would be next.
    Show {
        /// The id of the series.
        series: String,
        #[command(flatten)]
        args: NumbersArgs,
    },
    /// Draw numbers of a fast series. Numbers that are drawn are used up.
    Next {
        /// The id of the series.
        series: String,
        /// How many numbers to draw.
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
        count: u32,
        #[command(flatten)]
        args: NumbersArgs,
    },
    /// List the numbers that were reserved and not issued, with the reason.
    Gaps {
        /// The id of the series.
        series: String,
        /// The period of the counter, such as 2026, 2026-05, 2026-W21 or 2026-05-22. The default
        /// is the present one.
        #[arg(long, value_name = "PERIOD")]
        period: Option<String>,
        /// The counter to begin with.
        #[arg(long, value_name = "COUNTER", default_value_t = 0)]
        from: u64,
        /// The most ranges to list.
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        limit: u32,
        #[command(flatten)]
        args: NumbersArgs,
    },
}

impl NumbersCommand {
    pub(crate) fn args(&self) -> &NumbersArgs {
        match self {
            NumbersCommand::List(args)
            | NumbersCommand::Show { args, .. }
            | NumbersCommand::Next { args, .. }
            | NumbersCommand::Gaps { args, .. } => args,
        }
    }
}

/// The arguments that all commands for document numbers have.
#[derive(Debug, Args)]
pub(crate) struct NumbersArgs {
    /// The API of a node. If the nodes have no cluster port: of the node that owns the partition of
    /// the workspace.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8822")]
    pub(crate) node: NodeAddress,

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
