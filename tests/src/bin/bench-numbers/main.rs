//! Document numbers on every driver: how many numbers of a fast series a core draws, how long a
//! draw takes at a steady rate, and what a number of a gapless series costs a command.
//!
//! `cargo xtask bench numbers` starts the servers and runs this program. Tables go to stdout as
//! Markdown, progress to stderr.

mod fast;
mod gapless;

use std::{sync::Arc, time::Duration};

use clap::{Parser, ValueEnum};
use clock::Clock;
use eventlog::TrustLevel;
use vvm_tests::bench::{BenchDatabase, BenchError};

/// The allocator of the `vvm` binary.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures document numbers on every driver.
#[derive(Clone, Debug, Parser)]
struct Args {
    /// Measures only these drivers.
    #[arg(long, value_delimiter = ',', default_value = "mem,redb,cassandra,dynamodb")]
    drivers: Vec<String>,
    /// Measures only series of these policies.
    #[arg(long, value_delimiter = ',', default_value = "fast,gapless")]
    policies: Vec<Policy>,
    /// Fast: the number of values in a range.
    #[arg(long, default_value_t = 10_000)]
    range: u64,
    /// Fast: the numbers that are drawn in a second at the steady rate.
    #[arg(long, default_value_t = 100_000)]
    rate: u64,
    /// Gapless: the trust levels.
    #[arg(long, value_delimiter = ',', default_value = "0,2")]
    levels: Vec<TrustLevel>,
    /// Gapless: the numbers of workspaces.
    #[arg(long, value_delimiter = ',', default_value = "10,1000")]
    workspaces: Vec<u64>,
    /// Gapless: the numbers of commands in flight.
    #[arg(long, value_delimiter = ',', default_value = "1,320")]
    in_flight: Vec<usize>,
    /// The time of each round, in milliseconds.
    #[arg(long, default_value_t = 3_000)]
    span_ms: u64,
    /// The rounds. The median of each figure is shown.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Policy {
    Fast,
    Gapless,
}

impl Args {
    fn span(&self) -> Duration {
        Duration::from_millis(self.span_ms)
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), BenchError> {
    let args = Args::parse();
    let clock = Clock::system();
    for driver in &args.drivers {
        let database = BenchDatabase::connect(driver, &clock).await?;
        println!("### {}\n", database.driver.name());
        if args.policies.contains(&Policy::Fast) {
            fast::bench(&args, &clock, &database.driver).await?;
        }
        if args.policies.contains(&Policy::Gapless) {
            gapless::bench(&args, &clock, &database.driver).await?;
        }
        let driver = Arc::clone(&database.driver);
        driver.close().await;
    }
    Ok(())
}
