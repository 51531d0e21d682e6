//! The command of the node in redb, beside the same command as a stored function of PostgreSQL.
//!
//! `cargo xtask bench peers` runs this program. A table goes to stdout as Markdown, progress to
//! stderr. Without PostgreSQL on the machine only redb is measured.

mod postgres;

use std::{path::Path, sync::Arc, time::Duration};

use clap::Parser;
use clock::Clock;
use eventlog::TrustLevel;
use istorage::{KeyspaceName, StorageDriver};
use istorage_redb::{RedbConfig, RedbDriver};
use vvm_tests::bench::{BenchError, Sample, ShopLoad, bill, median, millis};

use self::postgres::PostgresServer;

/// The allocator of the `vvm` binary.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures commands in redb beside the same commands in PostgreSQL.
#[derive(Clone, Debug, Parser)]
struct Args {
    /// The numbers of clients, each with one command in flight.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64,320")]
    clients: Vec<usize>,
    /// The number of workspaces.
    #[arg(long, default_value_t = 1_000)]
    workspaces: u64,
    /// The rounds of each comparison. The median is shown.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The seconds of each round, for each database.
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// The folder for both databases.
    #[arg(long, default_value = "/var/tmp")]
    folder: std::path::PathBuf,
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), BenchError> {
    let args = Args::parse();
    let clock = Clock::system();
    let folder = tempfile::tempdir_in(&args.folder)?;
    let postgres = PostgresServer::start(folder.path(), args.workspaces, &clock).await?;
    if postgres.is_none() {
        eprintln!("PostgreSQL is not measured: it is not installed (package `postgresql`)");
    }
    println!("| clients | redb, commands/s | p50 | p99 | PostgreSQL, commands/s | mean | ratio |");
    println!("|---:|---:|---:|---:|---:|---:|---:|");
    for &clients in &args.clients {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..args.rounds {
            ours.push(redb(&args, clients, folder.path(), &clock).await?);
            let rate = ours[round].per_second;
            let line = format!("{clients} clients, round {round}: redb {rate:.0}/s");
            match &postgres {
                Some(postgres) => {
                    let figures = postgres.run(clients, args.seconds).await?;
                    eprintln!("{line}, PostgreSQL {:.0}/s", figures.per_second);
                    theirs.push(figures);
                }
                None => eprintln!("{line}"),
            }
        }
        let ratios: Vec<f64> = ours
            .iter()
            .zip(&theirs)
            .map(|(our, their)| our.per_second / their.per_second)
            .collect();
        let sample = Sample::medians(&ours).ok_or("there are no rounds")?;
        let Sample { per_second, p50, p99, .. } = sample;
        let peer = median(theirs.iter().map(|it| it.per_second).collect());
        let mean = median(theirs.iter().map(|it| it.mean_ms).collect());
        let shown = |figure: Option<f64>, digits: usize, unit: &str| {
            figure.map(|figure| format!("{figure:.digits$}{unit}")).unwrap_or_default()
        };
        println!(
            "| {clients} | {per_second:.0} | {} | {} | {} | {} | {} |",
            millis(p50),
            millis(p99),
            shown(peer, 0, ""),
            shown(mean, 2, " ms"),
            shown(median(ratios), 2, "")
        );
    }
    if let Some(postgres) = postgres {
        postgres.stop().await?;
    }
    Ok(())
}

/// Sends commands to a node with an empty file.
async fn redb(
    args: &Args,
    clients: usize,
    folder: &Path,
    clock: &Clock,
) -> Result<Sample, BenchError> {
    let folder = tempfile::tempdir_in(folder)?;
    let config = RedbConfig::new(folder.path().join("bench.redb"));
    let driver: Arc<dyn StorageDriver> = Arc::new(RedbDriver::open(config, clock.clone()).await?);
    let (name, level) = (KeyspaceName::new("bench")?, TrustLevel::default());
    let load =
        ShopLoad::new(&driver, name, level, args.workspaces, |storage| storage, clock).await?;
    let span = Duration::from_secs(args.seconds.into());
    let sample = load.run(clients, span, bill()?).await;
    load.stop().await;
    driver.close().await;
    sample
}
