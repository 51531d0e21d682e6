//! Readers that ask for as much as they can get, and readers that do not take what they asked for:
//! the lease is renewed, probes are answered, writes go on, and memory has a bound.
//!
//! `VVM_TEST_LONG=1` takes 4,000 readers and the default configuration. How fast probes and writes
//! are is measured with a release build, alone on a machine; a debug build makes JSON ten times as
//! slowly, so that the bounds on time are wider there.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

#[path = "support/node.rs"]
mod node;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::sleep,
    time::{Duration, Instant},
};

use node::{Node, command_path, request, try_request, workspace_path};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    runtime::Runtime,
};

/// The workspace that is read, that of the large document, and that which is written meanwhile.
const READ: u64 = 1;
const LARGE: u64 = 2;
const WRITTEN: u64 = 3;

const LEASE: u64 = 8;

/// How long a probe takes at most, and the part of the writes that go on beside readers at least.
const BOUNDS: (Duration, f64) = match cfg!(debug_assertions) {
    false => (Duration::from_millis(100), 0.5),
    true => (Duration::from_secs(1), 0.02),
};

/// How many readers there are of each kind, of how long a log, and for how long.
struct Load {
    logs: usize,
    lists: usize,
    docs: usize,
    events: u64,
    span: Duration,
    config: &'static str,
}

const SAMPLE: Load = Load {
    logs: 15,
    lists: 100,
    docs: 285,
    events: 1_000,
    span: Duration::from_secs(4),
    config: "[storage.redb]\npath = \"data/vvm.redb\"\ncache_bytes = 33554432\n\
             [http]\nconnections = 1000\nbodies_bytes = 16777216\nanswers_bytes = 33554432\nlogs = 8\n",
};

const LONG: Load = Load {
    logs: 150,
    lists: 1_000,
    docs: 2_850,
    events: 25_000,
    span: Duration::from_secs(20),
    config: "",
};

/// What readers were answered.
#[derive(Debug, Default)]
struct Counts {
    whole: AtomicU64,
    full: AtomicU64,
    /// Neither a whole answer nor 503.
    other: AtomicU64,
    bytes: AtomicU64,
}

/// 150 readers of a log, or 1,000 of lists, made a node lose its lease: they had all threads, and
/// the lease was not renewed in time. 2,000 readers of a document of 1 MB took 1.8 GB.
#[test]
fn greedy_readers_take_neither_the_lease_nor_the_probes_nor_the_writes() {
    let is_long = std::env::var_os("VVM_TEST_LONG").is_some();
    let load = if is_long { &LONG } else { &SAMPLE };
    let folder = tempfile::tempdir().unwrap();
    let config = format!("[node]\nlease_seconds = {LEASE}\n{}", load.config);
    let node = Node::start(folder.path(), &config).ready();
    let clients = Runtime::new().unwrap();
    fill(&node, load, &clients);

    let alone = written_in(&node, load.span, &clients);
    let (stop, counts) = (Arc::new(AtomicBool::new(false)), Arc::new(Counts::default()));
    let log = format!("{}/wlog?limit=1000000", workspace_path(READ));
    let list = format!("{}/cdocs/shop.Article?limit=1000", workspace_path(READ));
    let doc = format!("{}/docs/shop.Article/{}", workspace_path(LARGE), large_document(&node));
    for (path, readers) in [(log, load.logs), (list, load.lists), (doc, load.docs)] {
        for _ in 0..readers {
            let (path, counts, stop) = (path.clone(), Arc::clone(&counts), Arc::clone(&stop));
            clients.spawn(reads_on(node.api, path, counts, stop));
        }
    }
    let probes = probes(node.admin, Arc::clone(&stop));
    let beside = written_in(&node, load.span, &clients);
    stop.store(true, Ordering::Release);
    let slowest = probes.join().unwrap();
    let memory = most_memory(&node);
    println!(
        "writes {alone:.0}/s alone, {beside:.0}/s beside readers; slowest probes {slowest:?}; \
         {memory} MiB; {counts:?}"
    );
    let (bound, near_the_end) = (printed_bound(&node), renewals_near_the_end(&node));
    clients.shutdown_background();
    assert_eq!(near_the_end, 0, "{}", node.said());
    let (longest, least) = BOUNDS;
    assert!(slowest.iter().all(|(_, took)| *took < longest), "{slowest:?}");
    assert!(beside >= alone * least, "{beside} of {alone}");
    assert!(memory <= bound, "{memory} of {bound} MiB");
    assert_eq!(counts.other.load(Ordering::Relaxed), 0, "{counts:?}");
    assert!(!node.logged(WRITTEN).is_empty());
    node.stop();
}

/// A log of so many events, 1,000 documents, and a large one.
fn fill(node: &Node, load: &Load, clients: &Runtime) {
    for ws in [READ, LARGE, WRITTEN] {
        node.create_workspace(ws);
    }
    let rows: Vec<String> = (1..=1_000).map(row).collect();
    let (status, answer) =
        node.command(READ, "sys.CUD", &format!(r#"{{"rows":[{}]}}"#, rows.join(",")));
    assert_eq!(status, 200, "{answer}");
    let left = Arc::new(AtomicU64::new(load.events));
    let writers = (0..64).map(|_| {
        let (api, left) = (node.api, Arc::clone(&left));
        clients.spawn(async move {
            let mut stream = TcpStream::connect(api).await.unwrap();
            while left
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1))
                .is_ok()
            {
                write(&mut stream, READ).await;
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    clients.block_on(async {
        for writer in writers {
            writer.await.unwrap();
        }
    });
}

fn row(id: u64) -> String {
    format!(
        r#"{{"id":{id},"table":"shop.Article","fields":{{"name":"{id}: {}"}}}}"#,
        "tea ".repeat(30)
    )
}

/// Makes a document of 1 MB.
fn large_document(node: &Node) -> u64 {
    let body = format!(r#"{{"fields":{{"name":"{}"}}}}"#, "x".repeat(1_000_000));
    let docs = format!("{}/docs/shop.Article", workspace_path(LARGE));
    let (status, made) = request(node.api, "POST", &docs, &[], &body);
    assert_eq!(status, 201, "{made}");
    made["newIds"]["1"].as_u64().unwrap()
}

/// How many commands a second 16 clients have done.
fn written_in(node: &Node, span: Duration, clients: &Runtime) -> f64 {
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

/// Sends a command; whether it was done. A machine that is busy with other things may refuse it.
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

fn header(head: &str, name: &str) -> Option<u64> {
    let line = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix(name).map(str::to_owned));
    line?.trim_start_matches(':').trim().parse().ok()
}

/// Asks again and again, and after a refusal when it was told to.
async fn reads_on(api: SocketAddr, path: String, counts: Arc<Counts>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Acquire) {
        let (status, is_whole, retry_after) =
            read(api, &path, &counts.bytes).await.unwrap_or_default();
        let count = match (status, is_whole, retry_after) {
            (200, true, _) => &counts.whole,
            (503, true, Some(_)) => &counts.full,
            _ if stop.load(Ordering::Acquire) => return,
            _ => &counts.other,
        };
        count.fetch_add(1, Ordering::Relaxed);
        if let Some(seconds) = retry_after {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
        }
    }
}

/// Status, whether all of the answer came, and when to try again.
async fn read(
    api: SocketAddr,
    path: &str,
    bytes: &AtomicU64,
) -> std::io::Result<(u16, bool, Option<u64>)> {
    let mut stream = TcpStream::connect(api).await?;
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let (mut head, mut rest) = (Vec::new(), vec![0; 64 << 10]);
    let body_from = loop {
        if stream.read_buf(&mut head).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(at) = head.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
    };
    let (mut length, mut end) = (head.len() - body_from, head.split_off(body_from));
    loop {
        let read = stream.read(&mut rest).await?;
        if read == 0 {
            break;
        }
        bytes.fetch_add(read as u64, Ordering::Relaxed);
        length += read;
        end.extend_from_slice(&rest[read.saturating_sub(5)..read]);
        end.drain(..end.len().saturating_sub(5));
    }
    let head = String::from_utf8_lossy(&head);
    let is_whole = match header(&head, "content-length") {
        Some(said) => said as usize == length,
        None => end.ends_with(b"0\r\n\r\n"),
    };
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
    Ok((status, is_whole, header(&head, "retry-after")))
}

/// The slowest answer to each probe.
fn probes(
    admin: SocketAddr,
    stop: Arc<AtomicBool>,
) -> std::thread::JoinHandle<Vec<(&'static str, Duration)>> {
    std::thread::spawn(move || {
        let mut slowest = ["/livez", "/readyz", "/status"].map(|path| (path, Duration::ZERO));
        while !stop.load(Ordering::Acquire) {
            for (path, most) in &mut slowest {
                let start = Instant::now();
                let is_ok = matches!(try_request(admin, "GET", path, &[], ""), Ok((200, _)));
                *most = (*most).max(if is_ok { start.elapsed() } else { Duration::MAX });
            }
            sleep(Duration::from_millis(50));
        }
        slowest.to_vec()
    })
}

/// The most memory that the node ever had, in MiB.
fn most_memory(node: &Node) -> u64 {
    let status = format!("/proc/{}/status", node.pid().as_raw_nonzero());
    let status = std::fs::read_to_string(status).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

/// The most memory that it said it may have, in MiB.
fn printed_bound(node: &Node) -> u64 {
    let said = node.said();
    let (_, rest) = said.split_once("\"memory_mib\":").unwrap_or_else(|| panic!("{said}"));
    rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

/// How many renewals were confirmed when less than an eighth of the lease was left.
fn renewals_near_the_end(node: &Node) -> u64 {
    let (_, metrics) = request(node.admin, "GET", "/metrics", &[], "");
    let metrics = metrics.as_str().unwrap().to_owned();
    let eighth = format!("ielections_left_seconds_bucket{{slot=\"1\",le=\"{}\"}} ", LEASE / 8);
    let count = metrics.lines().find_map(|line| line.strip_prefix(&eighth));
    count.unwrap_or_else(|| panic!("{metrics}")).parse().unwrap()
}
