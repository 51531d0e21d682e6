//! The processor time of the node for one request: the cheapest one, and a command of one record.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use clock::Clock;
use rustix::process::Signal;
use shop::http_client::command_path;
use tokio::{runtime::Runtime, sync::Mutex};
use vvm_tests::bench::{
    BenchBinary, BenchError, BenchNode, KeptConnection, Sample, median, request_bytes,
};

use crate::Args;

/// Makes the request of a client that has this workspace of its own.
type MakeRequest = fn(u64) -> Vec<u8>;

const REQUESTS: [(&str, MakeRequest); 2] = [
    ("GET /api/check", |_| request_bytes("GET", "/api/check", "", "")),
    ("command of one record", |ws| {
        let rows = r#"{"rows":[{"id":1,"table":"shop.Article","fields":{"name":"Tea"}}]}"#;
        request_bytes("POST", &command_path(ws, "sys.CUD"), "", rows)
    }),
];

/// Measures a node in memory, in turn with that of another program if there is one.
pub(crate) fn measure(
    args: &Args,
    binaries: &[BenchBinary],
    clock: &Clock,
) -> Result<(), BenchError> {
    let runtime = Runtime::new()?;
    println!("### Processor time of a node in memory for a request\n");
    println!("| request | clients | requests/s | p50 | CPU of the node | other programs | ratio |");
    println!("|---|---:|---:|---:|---:|---|---|");
    for &clients in &args.clients {
        for (name, request) in REQUESTS {
            let mut rounds = vec![Vec::new(); binaries.len()];
            for round in 0..args.rounds {
                eprintln!("{name}, {clients} clients, round {}", round + 1);
                for (binary, rounds) in binaries.iter().zip(&mut rounds) {
                    let folder = tempfile::tempdir()?;
                    let node = binary.start(&["dev"], folder.path())?;
                    let span = Duration::from_secs(args.seconds);
                    let of = Requests { clients, request, span };
                    rounds.push(runtime.block_on(of.send(&node, clock))?);
                    node.end(Signal::TERM)?;
                }
            }
            let middle = |rounds: &[[f64; 3]], at: usize| {
                median(rounds.iter().map(|round| round[at]).collect()).unwrap_or(f64::NAN)
            };
            let [per_second, p50, cpu] = [0, 1, 2].map(|at| middle(&rounds[0], at));
            let others: Vec<String> =
                rounds[1..].iter().map(|other| format!("{:.1} µs", middle(other, 2))).collect();
            let ratios: Vec<String> = rounds[1..]
                .iter()
                .map(|other| {
                    let pairs = rounds[0].iter().zip(other);
                    let ratios = pairs.map(|(one, other)| one[2] / other[2]).collect();
                    format!("{:.2}", median(ratios).unwrap_or(f64::NAN))
                })
                .collect();
            let (others, ratios) = (others.join(", "), ratios.join(", "));
            println!(
                "| {name} | {clients} | {per_second:.0} | {p50:.0} µs | {cpu:.1} µs | {others} | \
                 {ratios} |"
            );
        }
    }
    println!();
    Ok(())
}

/// Clients that send the same request again and again.
struct Requests {
    clients: u32,
    request: MakeRequest,
    span: Duration,
}

impl Requests {
    /// Returns the requests in a second, the median of their times in microseconds, and the
    /// processor time of the node for each request in microseconds.
    async fn send(&self, node: &BenchNode, clock: &Clock) -> Result<[f64; 3], BenchError> {
        let kind = r#"{"args":{"kind":"Shop"}}"#;
        let mut connected = Vec::new();
        for ws in 1..=u64::from(self.clients) {
            let mut client = KeptConnection::connect(node.api()).await?;
            let path = command_path(ws, "sys.CreateWorkspace");
            client.ask(&request_bytes("POST", &path, "", kind)).await?;
            connected.push(Mutex::new((client, (self.request)(ws))));
        }
        let (connected, count) = (Arc::new(connected), Arc::new(AtomicU64::new(0)));
        let counted = Arc::clone(&count);
        let call = move |client: usize| {
            let (connected, count) = (Arc::clone(&connected), Arc::clone(&counted));
            async move {
                let (client, request) = &mut *connected[client].lock().await;
                client.ask(request).await?;
                count.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        };
        // The first requests are slower: the node fills its caches.
        let clients = self.clients as usize;
        Sample::measure(clock, clients, self.span / 10, call.clone()).await?;
        let (before, first) = (node.cpu()?, count.load(Ordering::Relaxed));
        let done = Sample::measure(clock, clients, self.span, call).await?;
        let count = count.load(Ordering::Relaxed) - first;
        let cpu = (node.cpu()? - before).as_secs_f64() / count as f64;
        Ok([done.per_second, done.p50.as_secs_f64() * 1e6, cpu * 1e6])
    }
}
