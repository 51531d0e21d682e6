//! The command of the node, in the process and over HTTP, beside the same command in PostgreSQL and
//! its event in NATS JetStream.
//!
//! `cargo xtask bench peers` runs this program. A table goes to stdout as Markdown, progress to
//! stderr.

mod nats;
mod node;
mod postgres;

use std::{path::PathBuf, time::Duration};

use clap::Parser;
use clock::Clock;
use vvm_tests::bench::{BenchBinary, BenchError, Sample, median, millis};

use self::{
    nats::NatsProgram,
    postgres::{PostgresFunction, PostgresServer},
};

/// The allocator of the `vvm` binary.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures the command of the node beside the same command in other servers on this disk.
#[derive(Clone, Debug, Parser)]
struct Args {
    /// The `vvm` program. The default is the one beside this program.
    #[arg(long)]
    vvm: Option<PathBuf>,
    /// The numbers of records of a command.
    #[arg(long, value_delimiter = ',', default_value = "1,3")]
    records: Vec<u64>,
    /// The numbers of clients, each with one command in flight.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64,320")]
    clients: Vec<usize>,
    /// The number of workspaces.
    #[arg(long, default_value_t = 1_000)]
    workspaces: u64,
    /// The rounds. In each of them every subject is measured, one after another, on empty tables.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The seconds of each measurement. A longer one also shows what a server puts off, such as the
    /// writes into its tables after those into its log.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// The folder for the data of all subjects.
    #[arg(long, default_value = "/var/tmp")]
    folder: PathBuf,
    /// More settings of PostgreSQL, such as `commit_delay=100`.
    #[arg(long, value_name = "NAME=VALUE")]
    postgres: Vec<String>,
}

/// What is measured.
enum Subject<'s> {
    /// The partitions and their clients in this process, on redb.
    InProcess,
    /// A node as a process of its own on redb, over HTTP.
    OverHttp(BenchBinary),
    Postgres(&'s PostgresServer, PostgresFunction),
    Nats(NatsProgram),
}

/// The load of a measurement.
#[derive(Clone, Copy, Debug)]
struct Load {
    clients: usize,
    records: u64,
    workspaces: u64,
    span: Duration,
}

impl Subject<'_> {
    fn name(&self) -> &'static str {
        match self {
            Subject::InProcess => "node, in the process",
            Subject::OverHttp(_) => "node, HTTP",
            Subject::Postgres(_, PostgresFunction::Gapless) => "PostgreSQL, gapless",
            Subject::Postgres(_, PostgresFunction::Sequence) => "PostgreSQL, sequence",
            Subject::Nats(_) => "NATS, event only",
        }
    }

    /// Sends commands to the subject, which has no events yet.
    async fn measure(&self, args: &Args, clock: &Clock, load: Load) -> Result<Sample, BenchError> {
        let folder = tempfile::tempdir_in(&args.folder)?;
        match self {
            Subject::InProcess => node::in_process(folder.path(), clock, load).await,
            Subject::OverHttp(binary) => node::over_http(binary, folder.path(), clock, load).await,
            Subject::Postgres(server, function) => server.measure(*function, load).await,
            Subject::Nats(program) => program.measure(folder.path(), clock, load).await,
        }
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), BenchError> {
    let args = Args::parse();
    let clock = Clock::system();
    let path = match &args.vvm {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("vvm"),
    };
    let mut subjects =
        vec![Subject::InProcess, Subject::OverHttp(BenchBinary::new(path, clock.clone()))];
    let folder = tempfile::tempdir_in(&args.folder)?;
    let postgres =
        PostgresServer::start(folder.path(), args.workspaces, &args.postgres, &clock).await?;
    match &postgres {
        Some(server) => {
            let functions = [PostgresFunction::Gapless, PostgresFunction::Sequence];
            subjects.extend(functions.map(|function| Subject::Postgres(server, function)));
        }
        None => println!("PostgreSQL is left out: install the package `postgresql`.\n"),
    }
    match NatsProgram::find().await? {
        Some(program) => subjects.push(Subject::Nats(program)),
        None => println!("NATS is left out: put `nats-server` into a folder of the PATH.\n"),
    }
    println!(
        "| records | clients | | commands/s | p50 | p99 | p99.9 | longest | ratio, HTTP \
         | ratio, in the process |"
    );
    println!("|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|");
    for &records in &args.records {
        for &clients in &args.clients {
            let (workspaces, span) = (args.workspaces, Duration::from_secs(args.seconds));
            let load = Load { clients, records, workspaces, span };
            measure(&args, &clock, &subjects, load).await?;
        }
    }
    drop(subjects);
    if let Some(postgres) = postgres {
        postgres.stop().await?;
    }
    Ok(())
}

/// Measures all subjects in turn, and prints a row of the table for each.
async fn measure(
    args: &Args,
    clock: &Clock,
    subjects: &[Subject<'_>],
    load: Load,
) -> Result<(), BenchError> {
    let Load { clients, records, .. } = load;
    let mut measured: Vec<Vec<Sample>> = subjects.iter().map(|_| Vec::new()).collect();
    for round in 1..=args.rounds {
        for (subject, samples) in subjects.iter().zip(&mut measured) {
            let name = subject.name();
            let failed = |error| format!("{name}, {clients} clients: {error}");
            let sample = subject.measure(args, clock, load).await.map_err(failed)?;
            let rate = sample.per_second;
            eprintln!("{records} records, {clients} clients, round {round}: {name} {rate:.0}/s");
            samples.push(sample);
        }
    }
    for (subject, samples) in subjects.iter().zip(&measured) {
        let middle = Sample::medians(samples).ok_or("--rounds is 0: there is no round")?;
        let Sample { per_second, p50, p99, p999, longest, .. } = middle;
        let [p50, p99, p999, longest] = [p50, p99, p999, longest].map(millis);
        let [in_process, over_http] = [&measured[0], &measured[1]].map(|ours| ratio(ours, samples));
        println!(
            "| {records} | {clients} | {} | {per_second:.0} | {p50} | {p99} | {p999} | {longest} \
             | {over_http:.2} | {in_process:.2} |",
            subject.name()
        );
    }
    Ok(())
}

/// The median of the ratios of two rates in each round.
fn ratio(ours: &[Sample], theirs: &[Sample]) -> f64 {
    let ratios = ours.iter().zip(theirs).map(|(our, their)| our.per_second / their.per_second);
    median(ratios.collect()).unwrap_or(f64::NAN)
}
