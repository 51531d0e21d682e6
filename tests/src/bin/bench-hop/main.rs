//! The price of a hop: a client that asks a node that does not own the partition, beside a client
//! that asks the owner. All nodes run in this process, over one database in memory.
//!
//! `cargo xtask bench hop` runs this program. A table goes to stdout as Markdown.

mod client;
mod nodes;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use clap::Parser;
use clock::Clock;
use tokio::{sync::Mutex, task::JoinSet};
use vvm_tests::bench::{BenchError, KeptConnection, Sample};

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
            let [Some(direct), Some(through)] = rounds.map(|rounds| Sample::medians(&rounds))
            else {
                return Err("there are no rounds".into());
            };
            for (way, round) in [("direct", &direct), ("through", &through)] {
                let Sample { per_second, p50, cpu, .. } = round;
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
    let [Some(before), Some(meanwhile)] = rounds.map(|rounds| Sample::medians(&rounds)) else {
        return Err("there are no rounds".into());
    };
    let waiting = format!("{} clients wait for it", args.frozen);
    for (who, Sample { per_second, cpu, .. }) in [("none waits", &before), (&waiting, &meanwhile)] {
        println!("| {who} | {per_second:.0} | {:.0} us |", cpu.as_secs_f64() * 1e6);
    }
    let cpu = before.cpu.as_secs_f64() / meanwhile.cpu.as_secs_f64();
    println!("| | {:.2} | {cpu:.2} |", meanwhile.per_second / before.per_second);
    Ok(())
}

/// Sends requests from this number of clients until the time is over. Each client has a connection
/// and a workspace of its own. The CPU time is that of all nodes and clients.
async fn measure(
    clock: &Clock,
    at: SocketAddr,
    clients: usize,
    is_read: bool,
    span_ms: u64,
) -> Result<Sample, BenchError> {
    let mut connected = Vec::new();
    for client in 0..clients as u64 {
        let ws = nodes::workspace(client);
        let request = if is_read { read(ws) } else { command(ws) };
        connected.push(Mutex::new((KeptConnection::connect(at).await?, request)));
    }
    let connected = Arc::new(connected);
    let call = move |client: usize| {
        let connected = Arc::clone(&connected);
        async move {
            let (connection, request) = &mut *connected[client].lock().await;
            connection.ask(request).await
        }
    };
    Sample::measure(clock, clients, Duration::from_millis(span_ms), call).await
}
