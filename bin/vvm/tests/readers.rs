//! Readers that ask for as much as they can get. The lease is renewed, probes are answered, writes
//! go on, and memory has a limit. Each answer is complete and right, or says that it is not.
//!
//! `VVM_TEST_LONG=1` takes 4,000 readers and the default configuration, and also runs on Cassandra
//! and DynamoDB. The promised figures are measured with a release build on redb, alone on a
//! machine. A debug build makes JSON ten times as slowly, so its bounds are wider. So are the
//! bounds on servers: a server has its own limits, and shares the processors with the readers here.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

#[path = "support/fixture.rs"]
mod fixture;
#[path = "support/node.rs"]
mod node;
#[path = "support/reading.rs"]
mod reading;

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::sleep,
    time::{Duration, Instant},
};

use fixture::{Storage, StorageFixture};
use libtest_mimic::{Arguments, Trial};
use node::NodeProcess;
use reading::{ReadOutcome, header};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use shop::http_client::{command_path, request, try_request, workspace_path};
use tck::trial::is_long;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    runtime::Runtime,
};

/// The workspace with the log that is read, the one with large documents, and the one that is
/// written meanwhile.
const READ: u64 = 1;
const LARGE: u64 = 2;
const WRITTEN: u64 = 3;

/// Returns the length of a lease, in seconds. Servers that share the machine with the readers need
/// more time for a call.
fn lease(storage: &Storage) -> u64 {
    if matches!(storage, Storage::Redb) { 8 } else { 20 }
}

/// The bounds that a build promises on a storage.
struct ReaderBounds {
    /// The bound of a probe. If the probes of an idle node are slow, too, the bound is higher: half
    /// of this time beyond the slowest of them.
    probe: Duration,
    /// The part of the writes that go on beside readers.
    writes: f64,
    /// Whether a partition may be stalled, because the storage is slow.
    may_stall: bool,
}

fn bounds(storage: &Storage) -> ReaderBounds {
    if cfg!(debug_assertions) || !matches!(storage, Storage::Redb) {
        ReaderBounds { probe: Duration::from_millis(300), writes: 0.1, may_stall: true }
    } else {
        ReaderBounds { probe: Duration::from_millis(100), writes: 0.5, may_stall: false }
    }
}

/// The number of readers of each kind, and the time that they read.
struct ReaderLoad {
    logs: usize,
    lists: usize,
    docs: usize,
    /// Readers of documents with JSON that is larger than the first share of memory of an answer.
    huge: usize,
    span: Duration,
    config: &'static str,
}

const SAMPLE: ReaderLoad = ReaderLoad {
    logs: 15,
    lists: 30,
    docs: 60,
    huge: 4,
    span: Duration::from_secs(4),
    config: "connections = 1000\nbodies_bytes = 16777216\nanswers_bytes = 33554432\nlogs = 8\n",
};

const LONG: ReaderLoad = ReaderLoad {
    logs: 150,
    lists: 1_000,
    docs: 2_750,
    huge: 100,
    span: Duration::from_secs(20),
    config: "",
};

/// The numbers of answers to readers, by their outcome.
#[derive(Debug, Default)]
struct ReadCounts {
    whole: AtomicU64,
    full: AtomicU64,
    cut: AtomicU64,
    wrong: Mutex<Option<String>>,
}

/// With 150 readers of a log, or 1,000 readers of lists, a node lost its lease: the readers had all
/// threads, and the lease was not renewed in time. With 2,000 readers of a document of 1 MB a node
/// took 1.8 GB.
fn greedy_readers(fixture: &StorageFixture) {
    let load = if is_long() { &LONG } else { &SAMPLE };
    let (lease, bounds) = (lease(&fixture.storage), bounds(&fixture.storage));
    let config = format!(
        "{}[node]\nlease_seconds = {lease}\n[http]\nbody_bytes = 4194304\n{}",
        fixture.config(&fixture.storage),
        load.config
    );
    let node = fixture.start("node", &config).ready();
    // The probes of an idle node show how slow a probe is on this machine beside these readers.
    let idle = fixture.start("idle", "[storage]\ndriver = \"mem\"\n").ready();
    let clients = Runtime::new().unwrap();
    let kinds = fill(&node, &fixture.storage, load, &clients);

    let alone = written_in(&node, load.span, &clients);
    let stop = Arc::new(AtomicBool::new(false));
    let kinds = kinds.map(|(path, readers)| {
        let start = Instant::now();
        loop {
            let (status, expected) = try_request(node.api, "GET", &path, &[], "").unwrap();
            if status == 200 {
                return (path, readers, Arc::new(expected));
            }
            assert!(status == 503 && start.elapsed() < node::PATIENCE, "{expected}");
        }
    });
    let mut all = Vec::new();
    let counts = kinds.map(|(path, readers, expected)| {
        let counts = Arc::new(ReadCounts::default());
        for _ in 0..readers {
            let (path, expected) = (path.clone(), Arc::clone(&expected));
            let (counts, stop) = (Arc::clone(&counts), Arc::clone(&stop));
            all.push(clients.spawn(reads_on(node.api, path, expected, counts, stop)));
        }
        counts
    });
    let probes = [&node, &idle].map(|node| probes(node.admin, bounds.may_stall, Arc::clone(&stop)));
    let beside = written_in(&node, load.span, &clients);
    stop.store(true, Ordering::Release);
    let [slowest, floor] = probes.map(|probes| probes.join().unwrap());
    // In the end each reader gets a complete answer. A debug build makes about ten in a second.
    let patience = node::PATIENCE * if cfg!(debug_assertions) { 5 } else { 1 };
    let ends = async { tokio::time::timeout(patience, futures::future::join_all(all)).await };
    let ends = clients.block_on(ends);
    let memory = node.most_memory();
    println!(
        "writes {alone:.0}/s alone, {beside:.0}/s beside readers; slowest probes {slowest:?}, \
         of an idle node {floor:?}; {memory} MiB; logs, lists, documents, large ones: {counts:?}"
    );
    let near_the_end = node.renewals_near_the_end(lease);
    clients.shutdown_background();
    assert_eq!(near_the_end, 0, "{}", node.log_text());
    let floor = floor.iter().map(|(_, took)| *took).max().unwrap();
    let is_slow = |(_, took): &(_, Duration)| *took >= bounds.probe.max(floor + bounds.probe / 2);
    assert!(!slowest.iter().any(is_slow), "{slowest:?}");
    assert!(beside >= alone * bounds.writes, "{beside} of {alone}");
    node::check_memory(memory, &node.log_text());
    for counts in &counts {
        let wrong = counts.wrong.lock().unwrap().take();
        assert!(wrong.is_none(), "{}", wrong.unwrap());
    }
    let ends = ends.expect("some readers did not get all of an answer");
    ends.into_iter().for_each(|reader| reader.unwrap());
    node.stop();
    idle.stop();
}

/// Writes a log of many events, 1,000 documents, and large ones. Returns their paths, and the
/// number of readers of each.
fn fill(
    node: &NodeProcess,
    storage: &Storage,
    load: &ReaderLoad,
    clients: &Runtime,
) -> [(String, usize); 4] {
    for ws in [READ, LARGE, WRITTEN] {
        node.create_workspace(ws);
    }
    let rows: Vec<String> = (1..=1_000).map(row).collect();
    for rows in rows.chunks(50) {
        let rows = rows.join(",");
        let (status, answer) = node.command(READ, "sys.CUD", &format!(r#"{{"rows":[{rows}]}}"#));
        assert_eq!(status, 200, "{answer}");
    }
    let is_dynamodb = matches!(storage, Storage::DynamoDb(_));
    let events = match is_long() && !cfg!(debug_assertions) {
        // A debug build takes minutes to send longer logs to all readers.
        false => 1_000,
        // DynamoDB Local takes minutes for more.
        true if is_dynamodb => 5_000,
        true => 25_000,
    };
    let events = write_events(node, events, clients);
    // The expected bytes of the readers are the bytes that one reader gets, so these must be right.
    assert_eq!(node.logged(READ).len() as u64, 1 + 1_000 / 50 + events);
    let list = format!("{}/cdocs/shop.Article?limit=1000", workspace_path(READ));
    let (_, listed) = request(node.api, "GET", &list, &[], "");
    assert_eq!(listed["docs"].as_array().unwrap().len(), 1_000);
    // Values of a megabyte are beyond a row of DynamoDB, and a server of Cassandra that is given
    // little memory collects garbage for seconds. JSON needs six bytes for the character U+0001.
    let large = if matches!(storage, Storage::Redb) { 1_000_000 } else { 100_000 };
    let [large, huge] =
        ["x".repeat(large), r"\u0001".repeat(380_000)].map(|name| document(node, &name));
    [
        (format!("{}/wlog?limit=1000000", workspace_path(READ)), load.logs),
        (list, load.lists),
        (large, load.docs),
        (huge, load.huge),
    ]
}

/// Sends this many commands, and returns the number that were done.
fn write_events(node: &NodeProcess, events: u64, clients: &Runtime) -> u64 {
    let left = Arc::new(AtomicU64::new(events));
    let writers = (0..64).map(|_| {
        let (api, left) = (node.api, Arc::clone(&left));
        clients.spawn(async move {
            let (mut stream, mut done) = (TcpStream::connect(api).await.unwrap(), 0);
            while left
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1))
                .is_ok()
            {
                done += u64::from(write(&mut stream, READ).await);
            }
            done
        })
    });
    let writers: Vec<_> = writers.collect();
    clients.block_on(async {
        let mut done = 0;
        for writer in writers {
            done += writer.await.unwrap();
        }
        done
    })
}

fn row(id: u64) -> String {
    format!(
        r#"{{"id":{id},"table":"shop.Article","fields":{{"name":"{id}: {}"}}}}"#,
        "tea ".repeat(30)
    )
}

/// Makes a document. The name is the inside of a JSON string.
fn document(node: &NodeProcess, name: &str) -> String {
    let docs = format!("{}/docs/shop.Article", workspace_path(LARGE));
    let body = format!(r#"{{"fields":{{"name":"{name}"}}}}"#);
    let (status, made) = request(node.api, "POST", &docs, &[], &body);
    assert_eq!(status, 201, "{made}");
    format!("{docs}/{}", made["newIds"]["1"])
}

/// Returns the number of commands a second that 16 clients do.
fn written_in(node: &NodeProcess, span: Duration, clients: &Runtime) -> f64 {
    let until = Instant::now() + span;
    let writers: Vec<_> = (0..16)
        .map(|_| {
            let api = node.api;
            clients.spawn(async move {
                let (mut stream, mut count) = (TcpStream::connect(api).await.unwrap(), 0);
                while Instant::now() < until {
                    count += i32::from(write(&mut stream, WRITTEN).await);
                }
                count
            })
        })
        .collect();
    let mut all = 0;
    clients.block_on(async {
        for writer in writers {
            all += writer.await.unwrap();
        }
    });
    f64::from(all) / span.as_secs_f64()
}

/// Sends a command, and returns whether it was done. A machine that is busy with other things may
/// refuse the command.
async fn write(stream: &mut TcpStream, ws: u64) -> bool {
    let body = format!(r#"{{"rows":[{}]}}"#, row(1));
    let path = command_path(ws, "sys.CUD");
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    loop {
        assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0, "it was cut");
        let text = String::from_utf8_lossy(&answer);
        if let Some((head, body)) = text.split_once("\r\n\r\n")
            && body.len() == header(head, "content-length").unwrap() as usize
        {
            let is_done = head.starts_with("HTTP/1.1 200");
            assert!(is_done || head.starts_with("HTTP/1.1 503"), "{text}");
            return is_done;
        }
    }
}

/// Reads again and again. After a refusal the reader waits as long as the answer says. At the end
/// the reader goes on until it has got a complete answer.
async fn reads_on(
    api: SocketAddr,
    path: String,
    expected: Arc<String>,
    counts: Arc<ReadCounts>,
    stop: Arc<AtomicBool>,
) {
    let mut has_got_it = false;
    while !stop.load(Ordering::Acquire) || !has_got_it {
        let answered = reading::read(api, &path, expected.as_bytes()).await;
        let count = match answered.unwrap_or_else(|error| ReadOutcome::Wrong(error.to_string())) {
            ReadOutcome::Whole => {
                has_got_it = true;
                &counts.whole
            }
            ReadOutcome::Cut => &counts.cut,
            ReadOutcome::Full(seconds) => {
                counts.full.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                continue;
            }
            ReadOutcome::Wrong(why) => {
                *counts.wrong.lock().unwrap() = Some(format!("{path}: {why}"));
                return;
            }
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns the time of the slowest answer to each probe.
fn probes(
    admin: SocketAddr,
    may_stall: bool,
    stop: Arc<AtomicBool>,
) -> std::thread::JoinHandle<Vec<(&'static str, Duration)>> {
    std::thread::spawn(move || {
        let mut slowest = ["/livez", "/readyz", "/status"].map(|path| (path, Duration::ZERO));
        while !stop.load(Ordering::Acquire) {
            for (path, most) in &mut slowest {
                let start = Instant::now();
                let is_right = match try_request(admin, "GET", path, &[], "") {
                    Ok((200, _)) => true,
                    Ok((503, _)) => may_stall && *path == "/readyz",
                    _ => false,
                };
                *most = (*most).max(if is_right { start.elapsed() } else { Duration::MAX });
            }
            sleep(Duration::from_millis(50));
        }
        slowest.to_vec()
    })
}

fn main() {
    // Each reader has an open file.
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let name = "greedy_readers_take_neither_the_lease_nor_the_probes_nor_the_writes";
    let trials = Storage::all().map(|(storage, there)| {
        let is_ignored = there.is_none() || (storage != "redb" && !is_long());
        let run = move || {
            greedy_readers(&StorageFixture::new(there.unwrap()));
            Ok(())
        };
        Trial::test(format!("{storage}::{name}"), run).with_ignored_flag(is_ignored)
    });
    // The trials measure times, so each trial has the machine for itself.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials.into()).exit();
}
