//! A client that may write sends small commands that change many large records. The lease is
//! renewed, probes and other clients are answered, and memory and the file have a limit.
//!
//! `VVM_TEST_LONG=1` takes 60 connections, 150 MB of records and five minutes. The promised figures
//! are measured with a release build. A debug build has wider bounds.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

#[expect(dead_code, reason = "the file serves all suites")]
#[path = "support/node.rs"]
mod node;

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{sleep, spawn},
    time::{Duration, Instant},
};

use node::{NodeProcess, PATIENCE, check_memory};
use serde_json::Value;
use shop::http_client::{command_path, request, try_request};
use tck::trial::is_long;

const ISSUER: &str = "https://issuer.example";
/// The default lease.
const LEASE_SECONDS: u64 = 20;
const MIB: u64 = 1 << 20;

/// What the client sends.
struct Attack {
    workspaces: u64,
    records: usize,
    /// The bytes of a record.
    record: usize,
    connections: u64,
    time: Duration,
}

const SAMPLE: Attack = Attack {
    workspaces: 4,
    records: 6,
    record: 300_000,
    connections: 16,
    time: Duration::from_secs(8),
};

const LONG: Attack = Attack {
    workspaces: 10,
    records: 15,
    record: 1_000_000,
    connections: 60,
    time: Duration::from_secs(300),
};

fn token(folder: &Path, subject: &str) -> String {
    let run = |line: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vvm"));
        let output = command.args(line).current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    if !folder.join("key.json").exists() {
        run(&["token", "keygen", "--out", "key.json", "--public", "keys.json"]);
    }
    let line = ["token", "new", "--key", "key.json", "--issuer", ISSUER, "--subject", subject];
    let grants = ["--app", "*", "--workspaces", "*", "--rights", "read,write", "--for", "1h"];
    format!("Bearer {}", run(&[&line[..], &grants].concat()).trim())
}

/// Sends a command, and returns the status and the answer.
fn command(node: &Clients, sender: &str, ws: u64, name: &str, body: &str) -> (u16, Value) {
    request(node.api, "POST", &command_path(ws, name), &[("authorization", sender)], body)
}

/// The address of the node, and the tokens of its clients.
#[derive(Clone)]
struct Clients {
    api: SocketAddr,
    greedy: String,
    other: String,
}

/// Sends a command until it is done.
fn done(node: &Clients, sender: &str, ws: u64, name: &str, body: &str) -> Value {
    let start = Instant::now();
    loop {
        let (status, answer) = command(node, sender, ws, name, body);
        if status == 200 {
            return answer;
        }
        let is_busy = status == 503 || status == 429;
        assert!(is_busy && start.elapsed() < PATIENCE, "{status} {answer}");
        sleep(Duration::from_millis(50));
    }
}

/// Makes a workspace with large records, and returns the body of a command that changes one small
/// field of each.
fn small_command(node: &Clients, ws: u64, attack: &Attack) -> String {
    done(node, &node.greedy, ws, "sys.CreateWorkspace", r#"{"args":{"kind":"Shop"}}"#);
    let text = "x".repeat(attack.record);
    let make = |_| {
        let row =
            r#"{"rows":[{"id":1,"table":"shop.Article","fields":{"cents":1,"name":"TEXT"}}]}"#;
        let made = done(node, &node.greedy, ws, "sys.CUD", &row.replace("TEXT", &text));
        made["newIds"]["1"].as_u64().unwrap()
    };
    let rows = (0..attack.records)
        .map(make)
        .map(|id| format!(r#"{{"id":{id},"table":"shop.Article","fields":{{"cents":2}}}}"#));
    format!(r#"{{"rows":[{}]}}"#, rows.collect::<Vec<_>>().join(","))
}

/// The slowest of some answers, and how many there were.
#[derive(Debug, Default)]
struct Answers {
    count: AtomicU64,
    slowest_micros: AtomicU64,
}

impl Answers {
    fn note(&self, start: Instant) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let micros = start.elapsed().as_micros() as u64;
        self.slowest_micros.fetch_max(micros, Ordering::Relaxed);
    }

    fn slowest(&self) -> Duration {
        Duration::from_micros(self.slowest_micros.load(Ordering::Relaxed))
    }
}

/// Sends a command of the greedy client again and again, and counts those that are done.
fn send_on(clients: &Clients, ws: u64, body: &str, stop: &AtomicBool, done: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        let (path, sender) = (command_path(ws, "sys.CUD"), clients.greedy.as_str());
        match try_request(clients.api, "POST", &path, &[("authorization", sender)], body) {
            Ok((200, _)) => drop(done.fetch_add(1, Ordering::Relaxed)),
            _ => sleep(Duration::from_millis(50)),
        }
    }
}

/// Probes a node until `stop` is set. Returns the time of each probe, the slowest last.
fn probe_on(admin: SocketAddr, stop: &AtomicBool) -> Vec<Duration> {
    let mut times = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        assert_eq!(request(admin, "GET", "/livez", &[], "").0, 200);
        times.push(start.elapsed());
        sleep(Duration::from_millis(50));
    }
    times.sort();
    times
}

/// Checks sorted times of probes: all but one in a thousand, and the slowest. Their bound is higher
/// if the machine is slow, which the node that nobody attacks shows, but not ten times higher.
fn check_probes(probes: &[Duration], of_idle: &[Duration], bound: Duration) {
    let most = |times: &[Duration]| times[times.len() - 1 - times.len() / 1_000];
    let slowest = |times: &[Duration]| *times.last().unwrap();
    for (time, idle) in [(most(probes), most(of_idle)), (slowest(probes), slowest(of_idle))] {
        let bound = bound.max(idle + bound / 2).min(bound * 10);
        assert!(time < bound, "{time:?}, of an idle node {idle:?}");
    }
}

/// Commands of 1.1 KB that each changed 15 records of 1 MB ended the node after 11 s: the renewal
/// of its lease waited behind them in the queue of the storage. With a limit of 10 commands a
/// second it ended, too. 250 KB of such commands left 7.3 GB on the disk.
#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "the memory of a process is read from /proc")]
fn small_commands_that_change_large_records_harm_nobody_else() {
    let attack = if is_long() { LONG } else { SAMPLE };
    let folder = tempfile::tempdir().unwrap();
    let (greedy, other) = (token(folder.path(), "greedy"), token(folder.path(), "other"));
    let config = format!("[access]\nkeys_file = \"keys.json\"\nissuer = \"{ISSUER}\"\n");
    let node = NodeProcess::start(folder.path(), &config).ready();
    // Nobody attacks this node. Its probes show how slow a probe is on this machine meanwhile.
    let in_memory = "[storage]\ndriver = \"mem\"\n[node]\nfolder = \"idle\"\n";
    let idle = NodeProcess::start(folder.path(), in_memory).ready();
    let clients = Clients { api: node.api, greedy, other };
    let bodies: Vec<_> =
        (1..=attack.workspaces).map(|ws| small_command(&clients, ws, &attack)).collect();
    for ws in 100..120 {
        done(&clients, &clients.other, ws, "sys.CreateWorkspace", r#"{"args":{"kind":"Shop"}}"#);
    }
    let file = folder.path().join("data/vvm.redb");
    let before = fs::metadata(&file).unwrap().len();

    let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut threads = Vec::new();
    for at in 0..attack.connections {
        let ws = at % attack.workspaces + 1;
        let (body, clients) = (bodies[ws as usize - 1].clone(), clients.clone());
        let (stop, sent) = (Arc::clone(&stop), Arc::clone(&sent));
        threads.push(spawn(move || send_on(&clients, ws, &body, &stop, &sent)));
    }
    let probes = [node.admin, idle.admin].map(|admin| {
        let stop = Arc::clone(&stop);
        spawn(move || probe_on(admin, &stop))
    });
    let (others, start) = (Answers::default(), Instant::now());
    while start.elapsed() < attack.time {
        let asked = Instant::now();
        let ws = 100 + others.count.load(Ordering::Relaxed) % 20;
        let row = r#"{"rows":[{"id":1,"table":"shop.Article","fields":{"name":"Tea"}}]}"#;
        let (status, answer) = command(&clients, &clients.other, ws, "sys.CUD", row);
        assert_eq!(status, 200, "another client: {answer}");
        others.note(asked);
        sleep(Duration::from_millis(20));
    }
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let [probes, idle_probes] = probes.map(|probes| probes.join().unwrap());
    let [slowest_probe, slowest_idle] =
        [&probes, &idle_probes].map(|probes| *probes.last().unwrap());

    let grown = fs::metadata(&file).unwrap().len() - before;
    let done = sent.load(Ordering::Relaxed);
    println!(
        "{done} commands of {} B; the file grew by {} MiB; {} MiB of memory; {} others, slowest \
         {:?}; {} probes, slowest {:?}; of an idle node {:?}",
        bodies[0].len(),
        grown / MIB,
        node.most_memory(),
        others.count.load(Ordering::Relaxed),
        others.slowest(),
        probes.len(),
        slowest_probe,
        slowest_idle,
    );
    assert!(done >= attack.workspaces, "the attack did something");
    assert_eq!(node.renewals_near_the_end(LEASE_SECONDS), 0);
    check_memory(node.most_memory(), &node.log_text());
    let (_, metrics) = request(node.admin, "GET", "/metrics", &[], "");
    let limited = |line: &&str| line.contains("outcome=\"limited\"") && !line.ends_with(" 0");
    assert!(metrics.as_str().unwrap().lines().any(|line| limited(&line)), "{metrics}");
    let slow = if cfg!(debug_assertions) { 10 } else { 1 };
    check_probes(&probes, &idle_probes, Duration::from_millis(100) * slow);
    // At first each of the 10 partitions may run one command, and the disk writes all of them.
    assert!(others.slowest() < Duration::from_secs(2) * slow, "{:?}", others.slowest());
    let command = 3 * (attack.records * attack.record) as u64;
    let allowed = 64 * MIB + 10 * command + 16 * MIB * attack.time.as_secs();
    // redb doubles its file when it is full.
    assert!(grown < 2 * (before + allowed), "{} MiB", grown / MIB);
    node.stop();
    idle.stop();
}
