//! Draws of document numbers over HTTP, beside the cheapest request to the same node.

use std::{fs, path::Path};

use rustix::process::Signal;
use vvm_tests::bench::{BenchBinary, BenchError};

use crate::{Args, medians};

/// The requests, with their arguments of `vvm bench` and the numbers that each of them draws. The
/// first one is the floor of the others.
const REQUESTS: [(&str, &[&str], u32); 3] = [
    ("read of the definition (the floor)", &["--send", "reads"], 0),
    ("draw of 1", &["--send", "draws"], 1),
    ("draw of 100", &["--send", "draws", "--count", "100"], 100),
];

/// The number of counters in a range, as in `bench numbers`. Few draws wait for the storage.
const RANGE: u32 = 10_000;

/// Writes the configuration of a node into its folder.
fn configure(folder: &Path, driver: &str) -> std::io::Result<()> {
    let config = format!(
        "[storage]\ndriver = \"{driver}\"\n[[apps]]\nname = \"demo/shop\"\ntables = \"tables.toml\"\n\
         workspaces = {{ Shop = 1 }}\n[apps.series.order]\n\
         template = \"ORDER{{date:yyyy-MMdd}}-{{counter:5}}\"\nreset = \"day\"\npolicy = \"fast\"\n\
         range = {RANGE}\n"
    );
    fs::write(folder.join("tables.toml"), "[tables.\"shop.Order\"]\nkind = \"WDoc\"\n")?;
    fs::write(folder.join("node.toml"), config)
}

/// Measures draws of a daily fast series.
pub(crate) fn measure(args: &Args, binary: &BenchBinary) -> Result<(), BenchError> {
    let workspaces = args.workspaces;
    println!("### Document numbers over HTTP, {workspaces} workspaces, ranges of {RANGE}\n");
    println!(
        "| storage | clients | request | requests/s | of the floor | numbers/s | p50 | p99 | CPU of \
         the node |"
    );
    println!("|---|---:|---|---:|---:|---:|---:|---:|---:|");
    for (storage, driver) in [("memory", "mem"), ("redb", "redb")] {
        for &clients in &args.clients {
            let mut rounds = REQUESTS.map(|_| Vec::new());
            for round in 0..args.rounds {
                eprintln!("numbers, {storage}, {clients} clients, round {}", round + 1);
                let folder = tempfile::tempdir()?;
                configure(folder.path(), driver)?;
                let node = binary.start(&["serve", "--config", "node.toml"], folder.path())?;
                for ((_, send, _), rounds) in REQUESTS.iter().zip(&mut rounds) {
                    let before = node.cpu()?;
                    let done = binary.bench(&node, clients, workspaces, args.seconds, send)?;
                    let cpu = (node.cpu()? - before).as_secs_f64() / done.count * 1e6;
                    rounds.push([done.per_second, done.p50, done.p99, cpu]);
                }
                node.end(Signal::TERM)?;
            }
            let [floor, ..] = medians(&rounds[0]);
            for ((request, _, count), rounds) in REQUESTS.iter().zip(&rounds) {
                let [per_second, p50, p99, cpu] = medians(rounds);
                let (ratio, numbers) = (per_second / floor, per_second * f64::from(*count));
                println!(
                    "| {storage} | {clients} | {request} | {per_second:.0} | {ratio:.2} | \
                     {numbers:.0} | {p50:.0} µs | {p99:.0} µs | {cpu:.0} µs |"
                );
            }
        }
    }
    println!();
    Ok(())
}
