//! The price of a hop: a client that asks a node that does not own the partition, beside a client
//! that asks the owner. All nodes run in this process, over one database in memory.
//!
//! `cargo xtask bench hop` runs this program. A table goes to stdout as Markdown.

mod client;
mod nodes;

use std::{net::SocketAddr, time::Duration};

use clap::Parser;
use clock::Clock;
use tokio::task::JoinSet;
use vvm_tests::bench::{BenchError, KeptConnection, cpu_time, median};

use self::{
    client::{command, read},
    nodes::BenchNodes,
};

/// The allocator of the `vvm` binary.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures requests that are forwarded.
#[derive(Clone, Debug, Parser)]
struct Args {
    /// The numbers of clients.
    #[arg(long, value_delimiter = ',', default_value = "1,64")]
    clients: Vec<usize>,
    /// The number of clients that wait for a frozen owner.
    #[arg(long, default_value_t = 200)]
    frozen: usize,
    /// The time of each round, in milliseconds.
    #[arg(long, default_value_t = 2_000)]
    span_ms: u64,
    /// The rounds. The median of each figure is shown.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// The requests of one round.
struct Round {
    per_second: f64,
    p50: Duration,
    /// The CPU time of all nodes and clients for one request. It varies less than the rate if other
    /// programs run.
    cpu: Duration,
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), BenchError> {
    let args = Args::parse();
    let clock = Clock::system();
    let nodes = BenchNodes::start(&clock).await?;
    println!("| request | clients | way | p50 | requests/s | CPU of a request |");
    println!("|---|---:|---|---:|---:|---:|");
    for (name, is_read) in [("command", false), ("read", true)] {
        for &clients in &args.clients {
            let mut rounds = [Vec::new(), Vec::new()];
            for round in 0..=args.rounds {
                for (at, rounds) in [nodes.owner, nodes.entry].into_iter().zip(&mut rounds) {
                    let round_of = measure(&clock, at, clients, is_read, args.span_ms).await?;
                    if round > 0 {
                        rounds.push(round_of);
                    }
                }
            }
            let [direct, through] = rounds.map(|rounds| medians(&rounds));
            for (way, round) in [("direct", &direct), ("through", &through)] {
                let Round { per_second, p50, cpu } = round;
                let [p50, cpu] =
                    [p50, cpu].map(|time| format!("{:.0} us", time.as_secs_f64() * 1e6));
                println!("| {name} | {clients} | {way} | {p50} | {per_second:.0} | {cpu} |");
            }
            let added = through.p50.saturating_sub(direct.p50).as_secs_f64() * 1e6;
            let rate = through.per_second / direct.per_second;
            let cpu = direct.cpu.as_secs_f64() / through.cpu.as_secs_f64();
            println!("| {name} | {clients} | | {added:.0} us added | {rate:.2} | {cpu:.2} |");
        }
    }
    frozen(&args, &clock, &nodes).await?;
    nodes.stop().await;
    Ok(())
}

/// Measures commands for other partitions while many clients wait for a frozen owner.
async fn frozen(args: &Args, clock: &Clock, nodes: &BenchNodes) -> Result<(), BenchError> {
    const CLIENTS: usize = 32;
    println!("\n| a frozen owner, {CLIENTS} clients of other partitions | commands/s | CPU |");
    println!("|---|---:|---:|");
    let mut rounds = [Vec::new(), Vec::new()];
    for _ in 0..args.rounds {
        rounds[0].push(measure(clock, nodes.entry, CLIENTS, false, args.span_ms).await?);
        let mut waiting = JoinSet::new();
        for _ in 0..args.frozen {
            let (entry, frozen) = (nodes.entry, nodes.frozen_workspace);
            waiting.spawn(async move {
                loop {
                    let mut client = KeptConnection::connect(entry).await?;
                    client.ask_anything(&command(frozen)).await?;
                }
                #[expect(unreachable_code, reason = "it names the type of the task")]
                Ok::<(), BenchError>(())
            });
        }
        clock.sleep(Duration::from_millis(200)).await;
        rounds[1].push(measure(clock, nodes.entry, CLIENTS, false, args.span_ms).await?);
        waiting.shutdown().await;
    }
    let [before, meanwhile] = rounds.map(|rounds| medians(&rounds));
    let waiting = format!("{} clients wait for it", args.frozen);
    for (who, Round { per_second, cpu, .. }) in [("none waits", &before), (&waiting, &meanwhile)] {
        println!("| {who} | {per_second:.0} | {:.0} us |", cpu.as_secs_f64() * 1e6);
    }
    let cpu = before.cpu.as_secs_f64() / meanwhile.cpu.as_secs_f64();
    println!("| | {:.2} | {cpu:.2} |", meanwhile.per_second / before.per_second);
    Ok(())
}

/// Sends requests from this number of clients until the time is over. Each client has a connection
/// and a workspace of its own.
async fn measure(
    clock: &Clock,
    at: SocketAddr,
    clients: usize,
    is_read: bool,
    span_ms: u64,
) -> Result<Round, BenchError> {
    let (start, cpu) = (clock.now(), cpu_time());
    let end = start + Duration::from_millis(span_ms);
    let mut running = JoinSet::new();
    for client in 0..clients as u64 {
        let clock = clock.clone();
        running.spawn(async move {
            let mut connection = KeptConnection::connect(at).await?;
            let ws = nodes::workspace(client);
            let request = if is_read { read(ws) } else { command(ws) };
            let (mut times, mut now) = (Vec::new(), clock.now());
            while now < end {
                connection.ask(&request).await?;
                let done = clock.now();
                times.push(done - now);
                now = done;
            }
            Ok::<_, BenchError>(times)
        });
    }
    let mut times = Vec::new();
    while let Some(client) = running.join_next().await {
        times.extend(client??);
    }
    let per_second = times.len() as f64 / (clock.now() - start).as_secs_f64();
    times.sort_unstable();
    let p50 = *times.get(times.len() / 2).ok_or("no request was answered in time")?;
    let cpu = (cpu_time() - cpu).div_f64(times.len() as f64);
    Ok(Round { per_second, p50, cpu })
}

/// The median of each figure by itself.
fn medians(rounds: &[Round]) -> Round {
    let middle =
        |figure: fn(&Round) -> f64| median(rounds.iter().map(figure).collect()).unwrap_or_default();
    Round {
        per_second: middle(|round| round.per_second),
        p50: Duration::from_secs_f64(middle(|round| round.p50.as_secs_f64())),
        cpu: Duration::from_secs_f64(middle(|round| round.cpu.as_secs_f64())),
    }
}
