//! The arguments of `vvm bench`.

use clap::{Args, ValueEnum};
use sysvvm::AppName;

use crate::client::{ConnectionArgs, NodeAddress};

#[derive(Debug, Args)]
pub struct BenchArgs {
    /// The APIs of the nodes, separated by commas. The clients are spread over the nodes, as a load
    /// balancer does. A client of several nodes sends a request again to the next node if nothing
    /// was done.
    #[arg(
        long = "node",
        value_name = "ADDRESS,...",
        value_delimiter = ',',
        default_value = "127.0.0.1:8822"
    )]
    pub(super) nodes: Vec<NodeAddress>,

    /// The application. It must have the tables of the demo.
    #[arg(long, value_name = "OWNER/NAME", default_value = "demo/shop")]
    pub(super) app: AppName,

    /// The requests that the clients send.
    #[arg(long, value_enum, value_name = "REQUESTS", default_value_t = BenchRequests::Commands)]
    pub(super) send: BenchRequests,

    /// The number of clients. Each has a connection of its own, and sends one request after
    /// another.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) clients: u32,

    /// The duration, in seconds.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(super) seconds: u64,

    /// The number of workspaces, numbered from 1. Workspaces that do not exist are made.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) workspaces: u32,

    /// The number of records that each command makes.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=4_096))]
    pub(super) records: u16,

    /// The number of document numbers in each draw.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) count: u32,

    /// Give each command an `Idempotency-Key`. Then a client of several nodes sends a command again
    /// even if its outcome is not known.
    #[arg(long)]
    pub(super) keys: bool,

    /// After the bench, read the logs of the workspaces, and report commands that are lost, were
    /// done twice, or were done although they were refused. Events of other clients in these
    /// workspaces do not count.
    #[arg(long)]
    pub(super) check: bool,

    /// Print the result as JSON.
    #[arg(long)]
    pub(super) json: bool,

    #[command(flatten)]
    pub(super) connection: ConnectionArgs,
}

/// The requests of a bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchRequests {
    /// Commands that make records.
    Commands,
    /// Draws of document numbers of the series `order`.
    Draws,
    /// Reads of the definition of the series `order`, which is in memory: the cheapest requests.
    Reads,
}

impl BenchRequests {
    /// The requests, as the command line names them.
    pub(super) fn name(self) -> &'static str {
        match self {
            BenchRequests::Commands => "commands",
            BenchRequests::Draws => "draws",
            BenchRequests::Reads => "reads",
        }
    }
}
