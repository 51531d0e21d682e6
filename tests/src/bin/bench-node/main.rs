//! A node as its users see it: commands and document numbers over HTTP, the processor time of a
//! request, and the node's start, rest and stop with a long log.
//!
//! `cargo xtask bench node` runs this program. Tables go to stdout as Markdown, progress to stderr.

#![expect(clippy::disallowed_methods, reason = "it has no runtime to wait in")]

mod numbers;
mod requests;

use std::{path::PathBuf, time::Duration};

use clap::Parser;
use clock::Clock;
use rustix::process::Signal;
use vvm_tests::bench::{BenchBinary, BenchError, median, millis};

/// Measures a node as its users see it.
#[derive(Clone, Debug, Parser)]
struct Args {
    /// The `vvm` program. The default is the one beside this program.
    #[arg(long)]
    vvm: Option<PathBuf>,
    /// Other `vvm` programs. The part `requests` measures them in turn with the first one.
    #[arg(long, value_delimiter = ',')]
    others: Vec<PathBuf>,
    /// Measures only these parts.
    #[arg(long, value_delimiter = ',', default_value = "commands,requests,numbers,starts")]
    parts: Vec<String>,
    /// The numbers of clients that send requests.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64,320")]
    clients: Vec<u32>,
    /// The number of workspaces.
    #[arg(long, default_value_t = 10)]
    workspaces: u32,
    /// The rounds of each measurement, each with an empty storage. The median is shown.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How long requests are sent in a round, in seconds.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// The number of events in the log when starts are measured.
    #[arg(long, default_value_t = 1_000_000)]
    events: u64,
    /// The number of starts of each kind. The median and the longest are shown.
    #[arg(long, default_value_t = 7)]
    starts: usize,
}

fn main() -> Result<(), BenchError> {
    let args = Args::parse();
    let clock = Clock::system();
    let path = match &args.vvm {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("vvm"),
    };
    let paths = [path].into_iter().chain(args.others.iter().cloned());
    let binaries: Vec<_> = paths.map(|path| BenchBinary::new(path, clock.clone())).collect();
    let binary = &binaries[0];
    for part in &args.parts {
        match &**part {
            "commands" => commands(&args, binary)?,
            "requests" => requests::measure(&args, &binaries, &clock)?,
            "numbers" => numbers::measure(&args, binary)?,
            "starts" => starts(&args, binary, &clock)?,
            other => return Err(format!("there is no part `{other}`").into()),
        }
    }
    Ok(())
}

/// Measures the commands per second of a node.
fn commands(args: &Args, binary: &BenchBinary) -> Result<(), BenchError> {
    println!("### Commands over HTTP, {} workspaces\n", args.workspaces);
    println!("| storage | clients | commands/s | p50 | p99 | CPU of the node |");
    println!("|---|---:|---:|---:|---:|---:|");
    for (storage, command) in [("memory", ["dev"]), ("redb", ["serve"])] {
        for clients in &args.clients {
            let mut rounds = Vec::new();
            for round in 0..args.rounds {
                eprintln!("{storage}, {clients} clients, round {}", round + 1);
                let folder = tempfile::tempdir()?;
                let node = binary.start(&command, folder.path())?;
                let before = node.cpu()?;
                let done = binary.bench(&node, *clients, args.workspaces, args.seconds, &[])?;
                let cpu = (node.cpu()? - before).as_secs_f64() / done.count * 1e6;
                node.end(Signal::TERM)?;
                rounds.push([done.per_second, done.p50, done.p99, cpu]);
            }
            let [per_second, p50, p99, cpu] = medians(&rounds);
            println!(
                "| {storage} | {clients} | {per_second:.0} | {p50:.0} µs | {p99:.0} µs | {cpu:.0} µs |"
            );
        }
    }
    println!();
    Ok(())
}

fn medians(rounds: &[[f64; 4]]) -> [f64; 4] {
    std::array::from_fn(|at| {
        median(rounds.iter().map(|round| round[at]).collect()).unwrap_or(f64::NAN)
    })
}

/// Measures the start, the rest and the stop of a node with a long log.
fn starts(args: &Args, binary: &BenchBinary, clock: &Clock) -> Result<(), BenchError> {
    /// The number of clients that fill the log, and that send commands when the node is stopped or
    /// killed under load.
    const CLIENTS: u32 = 320;
    let folder = tempfile::tempdir()?;
    let mut node = binary.start(&["serve"], folder.path())?;
    let mut events = 0.0;
    while events < args.events as f64 {
        eprintln!("{events:.0} of {} events", args.events);
        events += binary.bench(&node, CLIENTS, 1_000, 10, &[])?.count;
    }
    println!("### Start, rest and stop on redb, with {events:.0} events of 1,000 workspaces\n");
    println!("| | median | longest |");
    println!("|---|---:|---:|");
    let mut stops = Vec::new();
    for (signal, loaded, what) in [
        (Signal::TERM, false, "from start to ready, after it was stopped"),
        (Signal::KILL, false, "after it was killed"),
        (Signal::KILL, true, "after it was killed under load"),
        (Signal::TERM, true, "after it was stopped under load"),
    ] {
        let mut took = Vec::new();
        for _ in 0..args.starts {
            let load = loaded.then(|| binary.load(&node, CLIENTS)).transpose()?;
            let stop = clock.now();
            node.end(signal)?;
            if loaded && signal == Signal::TERM {
                stops.push(clock.now() - stop);
            }
            drop(load);
            let start = clock.now();
            node = binary.start(&["serve"], folder.path())?;
            took.push(clock.now() - start);
        }
        println!("| {what} | {} | {} |", millis(middle(&took)), millis(longest(&took)));
    }
    println!(
        "| from SIGTERM to the end, under load | {} | {} |",
        millis(middle(&stops)),
        millis(longest(&stops))
    );
    println!();
    let (rest, span) = (node.cpu()?, Duration::from_secs(20));
    std::thread::sleep(span);
    let cpu = (node.cpu()? - rest).as_secs_f64() / span.as_secs_f64();
    println!("Doing nothing: {} MB, {:.2} % of a core.\n", node.memory()? >> 20, cpu * 100.0);
    node.end(Signal::TERM)
}

fn middle(times: &[Duration]) -> Duration {
    let middle = median(times.iter().map(Duration::as_secs_f64).collect());
    middle.map(Duration::from_secs_f64).unwrap_or_default()
}

fn longest(times: &[Duration]) -> Duration {
    times.iter().copied().max().unwrap_or_default()
}
