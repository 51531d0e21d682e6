//! Clients without a token against a node with tokens. They take what they can get: the places of
//! connections, the memory of the kernel, and the log. Meanwhile the lease is kept, probes and
//! clients with tokens are answered, memory and log have bounds, and each action of an operator is
//! in the log.
//!
//! `VVM_TEST_LONG=1` takes five minutes for each attack, and a stricter bound for probes. A short
//! run takes seconds, beside whatever else the machine does.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

#[expect(dead_code, reason = "the file serves all suites, and most of them without tokens")]
#[path = "support/node.rs"]
mod node;

use std::{
    fs::{self, File},
    io::Read,
    net::SocketAddr,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle, sleep},
    time::{Duration, Instant},
};

use libtest_mimic::{Arguments, Trial};
use node::{NodeProcess, check_memory, free};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use shop::http_client::{command_path, request, try_request};
use tck::trial::is_long;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    runtime::{Builder, Runtime},
    time::timeout,
};

const ISSUER: &str = "https://issuer.example";
const WS: u64 = 1;
const LEASE_SECONDS: u64 = 8;

/// The pages that need no token. Their answers are the largest that a client without a token gets.
const ADMIN_PAGE: &str = "/";
const API_PAGE: &str = "/api/v2/";

/// How long an attack goes on.
fn span() -> Duration {
    Duration::from_secs(if is_long() { 300 } else { 5 })
}

/// The bound of a probe. If the probes of an idle node are slow, too, the bound is higher: half of
/// this time beyond the slowest of them.
fn probe_bound() -> Duration {
    Duration::from_millis(if is_long() { 100 } else { 1_000 })
}

/// The bound of a request with a token, from its connection on.
const WITH_TOKEN: Duration = Duration::from_secs(3);

/// A node with tokens on redb, and tokens for it.
struct GuardedNode {
    node: NodeProcess,
    /// A node that nobody attacks. Its probes show how slow a probe is on this machine meanwhile.
    idle: NodeProcess,
    operator: String,
    client: String,
    _folder: TempDir,
}

impl GuardedNode {
    /// Starts a node. `log` is a pipe that takes the log in place of the file.
    fn start(http: &str, log: Option<&Path>) -> GuardedNode {
        let tempdir = tempfile::tempdir().unwrap();
        let folder = tempdir.path();
        vvm(folder, &["token", "keygen", "--out", "key.json", "--public", "keys.json"]);
        let config = format!(
            "[storage]\ndriver = \"redb\"\nredb = {{ path = \"vvm.redb\", cache_bytes = 33554432 }}\n\
             [node]\nlease_seconds = {LEASE_SECONDS}\n[http]\n{http}\n[log]\nformat = \"json\"\n\
             [access]\nkeys_file = \"keys.json\"\nissuer = \"{ISSUER}\"\n"
        );
        let program = env!("CARGO_BIN_EXE_vvm");
        let command = match log {
            None => Command::new(program),
            Some(pipe) => {
                let mut command = Command::new("sh");
                let redirected = format!("exec \"$0\" \"$@\" 2>{}", pipe.display());
                command.args(["-c", &redirected, program]);
                command
            }
        };
        let node = NodeProcess::spawn(command, folder, &config, free(), free()).ready();
        let (operator, client) = (token(folder, "admin"), token(folder, "read,write"));
        let idle =
            NodeProcess::start(folder, "[storage]\ndriver = \"mem\"\n[node]\nfolder = \"idle\"\n");
        let guarded = GuardedNode { node, idle: idle.ready(), operator, client, _folder: tempdir };
        let created = guarded.command("sys.CreateWorkspace", r#"{"args":{"kind":"Shop"}}"#);
        assert_eq!(created.unwrap(), 200);
        guarded
    }

    /// Sends a command with the token of a client, and returns the status.
    fn command(&self, name: &str, body: &str) -> std::io::Result<u16> {
        command(self.node.api, &self.client, name, body)
    }

    /// Watches the node until `stop` is set.
    fn watch(&self, stop: &Arc<AtomicBool>) -> Watch {
        let (api, admin) = (self.node.api, self.node.admin);
        let [probes, idle] = [admin, self.idle.admin].map(|admin| {
            each_time(Duration::from_millis(50), stop, move |_| {
                let (status, _) = try_request(admin, "GET", "/livez", &[], "").ok()?;
                (status == 200).then_some(())
            })
        });
        let client = self.client.clone();
        let commands = each_time(Duration::from_millis(100), stop, move |_| {
            let body = r#"{"rows":[{"id":1,"table":"shop.Article"}]}"#;
            (command(api, &client, "sys.CUD", body).ok()? == 200).then_some(())
        });
        let operator = self.operator.clone();
        // The query is not one of the action, which is refused: its line in the log is the same.
        let actions = each_time(Duration::from_millis(200), stop, move |at| {
            let path = format!("/repairs/mark?action={at}.");
            let headers = [("authorization", operator.as_str())];
            let (status, _) = try_request(admin, "POST", &path, &headers, "").ok()?;
            (status == 400).then_some(())
        });
        Watch { probes, idle, commands, actions }
    }

    /// The bytes in the queues of the sockets of the node, in the kernel.
    fn queued(&self) -> u64 {
        let ports = [self.node.api, self.node.admin].map(|it| format!(":{:04X}", it.port()));
        let sockets = fs::read_to_string("/proc/net/tcp").unwrap();
        let of_node = sockets.lines().filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let is_ours = ports.iter().any(|port| words[1].ends_with(port.as_str()));
            // The state 0A is that of a listener, where the columns have another meaning.
            (is_ours && words[3] != "0A").then(|| words[4].to_owned())
        });
        let bytes = |text: &str| u64::from_str_radix(text, 16).unwrap();
        of_node.map(|queues| queues.split(':').map(bytes).sum::<u64>()).sum()
    }
}

fn command(api: SocketAddr, token: &str, name: &str, body: &str) -> std::io::Result<u16> {
    let headers = [("authorization", token)];
    Ok(try_request(api, "POST", &command_path(WS, name), &headers, body)?.0)
}

fn vvm(folder: &Path, line: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vvm"));
    let output = command.args(line).current_dir(folder).env_remove("RUST_LOG").output().unwrap();
    assert!(output.status.success(), "{line:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Makes a token, as the value of `Authorization`.
fn token(folder: &Path, rights: &str) -> String {
    let line = ["token", "new", "--key", "key.json", "--issuer", ISSUER, "--rights", rights];
    let of = ["--subject", "a", "--for", "1h", "--app", "*", "--workspaces", "*"];
    format!("Bearer {}", vvm(folder, &[&line[..], &of].concat()).trim())
}

/// The machine's own view of the memory of all its TCP sockets, those of the clients included.
fn sockstat_mib() -> u64 {
    let stat = fs::read_to_string("/proc/net/sockstat").unwrap();
    let line = stat.lines().find(|line| line.starts_with("TCP:")).unwrap();
    let pages: u64 = line.split_whitespace().last().unwrap().parse().unwrap();
    pages * 4 / 1_024
}

/// Does a thing again and again, on a thread of its own. Returns the time of each; one that failed
/// took forever.
fn each_time(
    pause: Duration,
    stop: &Arc<AtomicBool>,
    act: impl Fn(usize) -> Option<()> + Send + 'static,
) -> JoinHandle<Vec<Duration>> {
    let stop = Arc::clone(stop);
    thread::spawn(move || {
        let mut times = Vec::new();
        while !stop.load(Ordering::Acquire) {
            let start = Instant::now();
            let done = act(times.len());
            times.push(done.map_or(Duration::MAX, |()| start.elapsed()));
            sleep(pause);
        }
        times
    })
}

/// The threads that watch a node.
struct Watch {
    probes: JoinHandle<Vec<Duration>>,
    idle: JoinHandle<Vec<Duration>>,
    commands: JoinHandle<Vec<Duration>>,
    actions: JoinHandle<Vec<Duration>>,
}

/// The times of requests to a node that is attacked.
struct Watched {
    probes: Vec<Duration>,
    idle: Vec<Duration>,
    commands: Vec<Duration>,
    actions: Vec<Duration>,
}

impl Watch {
    fn end(self, attack: &str) -> Watched {
        let [probes, idle, commands, actions] =
            [self.probes, self.idle, self.commands, self.actions].map(|it| it.join().unwrap());
        for (of, times) in [
            ("livez", &probes),
            ("livez of an idle node", &idle),
            ("command", &commands),
            ("action", &actions),
        ] {
            let mut sorted = times.clone();
            sorted.sort();
            let failed = sorted.iter().filter(|time| **time == Duration::MAX).count();
            println!(
                "{attack}: {of}: {} sent, {failed} failed, median {:?}, slowest {:?}",
                sorted.len(),
                sorted[sorted.len() / 2],
                sorted.last().unwrap()
            );
        }
        Watched { probes, idle, commands, actions }
    }
}

impl Watched {
    fn check(&self, node: &NodeProcess) {
        let late = |times: &[Duration], bound| times.iter().filter(|it| **it > bound).count();
        let floor = self.idle.iter().max().unwrap();
        let bound = probe_bound().max(*floor + probe_bound() / 2);
        // Other programs share the machine, and may delay one probe in a thousand for longer.
        let few = self.probes.len() / 1_000;
        assert!(late(&self.probes, bound) <= few, "{few} probes may be later than {bound:?}");
        assert_eq!(late(&self.probes, Duration::from_secs(1)), 0, "probes later than a second");
        assert_eq!(late(&self.commands, WITH_TOKEN), 0, "commands");
        assert_eq!(late(&self.actions, WITH_TOKEN), 0, "actions of an operator");
        assert_eq!(node.renewals_near_the_end(LEASE_SECONDS), 0, "the lease was nearly lost");
    }

    /// Checks that each action has its line.
    fn check_lines(&self, log: &str) {
        let sent = self.actions.iter().enumerate().filter(|(_, took)| **took != Duration::MAX);
        let is_in = |at: usize| log.contains(&format!("action={at}.\""));
        let lost: Vec<_> = sent.map(|(at, _)| at).filter(|at| !is_in(*at)).collect();
        assert!(lost.is_empty(), "{} of {} lines", lost.len(), self.actions.len());
    }
}

/// The clients that attack. One thread is enough, and leaves the machine to the node.
fn clients() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn get(method: &str, path: &str, host: &str) -> Vec<u8> {
    format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\n\r\n").into_bytes()
}

/// Sends requests and reads nothing, until the node cuts the connection. Then the client comes
/// again.
async fn pipelines(
    address: SocketAddr,
    requests: Vec<u8>,
    pause: Duration,
    connections: Arc<AtomicU64>,
) {
    loop {
        let connected = timeout(Duration::from_secs(1), TcpStream::connect(address)).await;
        if let Ok(Ok(mut stream)) = connected {
            connections.fetch_add(1, Ordering::Relaxed);
            let sent = timeout(Duration::from_millis(100), stream.write_all(&requests)).await;
            // An empty line before a request is skipped. A cut connection does not take it.
            let mut is_open = !matches!(sent, Ok(Err(_)));
            while is_open {
                tokio::time::sleep(Duration::from_millis(20)).await;
                let would_block =
                    |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
                is_open =
                    stream.try_write(b"\r\n").map_or_else(|error| would_block(&error), |_| true);
            }
        }
        // The clients are more than the places, so all places are taken also during this pause. A
        // shorter one is an attack on the processor, which these bounds do not promise to stand.
        tokio::time::sleep(pause).await;
    }
}

/// Sends requests one after the other, and takes all answers, until the node cuts the connection.
/// Then the client comes again.
async fn reads(address: SocketAddr, requests: Vec<u8>, pause: Duration) {
    let mut scrap = vec![0; 64 << 10];
    loop {
        if let Ok(mut stream) = TcpStream::connect(address).await {
            let (mut reading, mut writing) = stream.split();
            let writes = async { while writing.write_all(&requests).await.is_ok() {} };
            let reads =
                async { while reading.read(&mut scrap).await.is_ok_and(|read| read > 0) {} };
            tokio::select! { () = writes => {}, () = reads => {} }
        }
        tokio::time::sleep(pause).await;
    }
}

/// 100 connections that each sent 300 requests and read nothing kept the probes of the admin
/// endpoint out for 57 s, and the API with all its connections likewise: only connections without a
/// request gave way to new ones. In a later version, clients that took all answers kept their
/// places, if they had always sent the next request.
fn unread_answers_give_way() {
    let guarded = GuardedNode::start("connections = 100", None);
    let (node, clients, stop) = (&guarded.node, clients(), Arc::new(AtomicBool::new(false)));
    let connections = Arc::new(AtomicU64::new(0));
    for (address, page) in [(node.admin, ADMIN_PAGE), (node.api, API_PAGE)] {
        let no_body =
            format!("POST {page} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n");
        for at in 0..150 {
            let requests = match at % 10 {
                0 => get("HEAD", page, "localhost").repeat(300),
                1 => no_body.clone().into_bytes(),
                _ => get("GET", page, "localhost").repeat(300),
            };
            // They come again one by one.
            let pause = Duration::from_millis(500 + at * 7);
            if at % 50 == 2 {
                let requests = get("HEAD", page, "localhost").repeat(1_000);
                clients.spawn(reads(address, requests, pause));
                continue;
            }
            clients.spawn(pipelines(address, requests, pause, Arc::clone(&connections)));
        }
    }
    // Before the first probe, the clients have all places.
    sleep(Duration::from_secs(1));
    let watch = guarded.watch(&stop);
    sleep(span());
    stop.store(true, Ordering::Release);
    let watched = watch.end("unread answers");
    println!(
        "unread answers: {} connections, {} KiB in queues, {} MiB",
        connections.load(Ordering::Relaxed),
        guarded.queued() >> 10,
        node.most_memory()
    );
    clients.shutdown_background();
    watched.check(node);
    check_memory(node.most_memory(), &node.log_text());
    watched.check_lines(&node.log_text());
    guarded.node.stop();
}

/// Sends requests and reads nothing, until the kernels of both ends take no more.
async fn fills(address: SocketAddr, request: Vec<u8>) {
    // The memory of the kernel for the client is as small as it can be, so that the sum of all
    // sockets is that of the node.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    socket.set_send_buffer_size(4_096).unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    // With its first answers the client makes the kernel expect much of this connection.
    let first = request.repeat(50);
    let mut scrap = vec![0; 1 << 20];
    for _ in 0..10 {
        let _ = timeout(Duration::from_millis(100), stream.write_all(&first)).await;
        while let Ok(Ok(read)) = timeout(Duration::from_millis(50), stream.read(&mut scrap)).await
            && read > 0
        {}
    }
    let all = request.repeat(1_000);
    loop {
        let _ = timeout(Duration::from_millis(100), stream.write_all(&all)).await;
    }
}

/// 300 connections that read nothing held 1.13 GB in the kernel, and pipelined HEAD requests more
/// and more memory of the node: their answers have no body, and nothing bounded their heads.
fn unread_connections_hold_little_memory() {
    let guarded = GuardedNode::start("", None);
    let (node, clients, stop) = (&guarded.node, clients(), Arc::new(AtomicBool::new(false)));
    let before = (sockstat_mib(), node.most_memory());
    for at in 0..300 {
        let method = if at % 3 == 0 { "HEAD" } else { "GET" };
        clients.spawn(fills(node.api, get(method, API_PAGE, "localhost")));
    }
    let watch = guarded.watch(&stop);
    let start = Instant::now();
    let mut most = 0;
    while start.elapsed() < span() {
        most = most.max(guarded.queued());
        sleep(Duration::from_millis(100));
    }
    stop.store(true, Ordering::Release);
    let watched = watch.end("unread connections");
    let memory = (sockstat_mib(), node.most_memory());
    println!(
        "unread connections: {} KiB in queues of the node; of all sockets {} MiB, before {}; \
         process {} MiB, before {}",
        most >> 10,
        memory.0,
        before.0,
        memory.1,
        before.1
    );
    clients.shutdown_background();
    watched.check(node);
    check_memory(node.most_memory(), &node.log_text());
    watched.check_lines(&node.log_text());
    assert!(most <= 300 * KERNEL_BYTES, "{most}");
    // Other programs of the machine may have sockets, too.
    assert!(memory.0 <= before.0 + ((300 * KERNEL_BYTES) >> 20) + 50, "{memory:?}");
    assert!(memory.1 <= before.1 + 100, "{memory:?}");
    guarded.node.stop();
}

/// The memory that the kernel has for a connection that is not read, as `docs/operations.md` says.
const KERNEL_BYTES: u64 = 256 << 10;

/// Sends requests that are refused, and reads the answers.
async fn floods(address: SocketAddr, request: Vec<u8>) {
    let requests = request.repeat(10);
    let mut scrap = vec![0; 64 << 10];
    loop {
        // A connection with a malformed request ends, and the next one must not come at once.
        tokio::time::sleep(Duration::from_millis(10)).await;
        let Ok(mut stream) = TcpStream::connect(address).await else { continue };
        let (mut reading, mut writing) = stream.split();
        // All requests together would fill some MB of log in a second. The machine has time for the
        // node meanwhile.
        let writes = async {
            while writing.write_all(&requests).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let reads = async { while reading.read(&mut scrap).await.is_ok_and(|read| read > 0) {} };
        tokio::select! { () = writes => {}, () = reads => {} }
    }
}

/// Reads the log that a node writes into a pipe, slowly until `stop` is set.
fn slow_reader(pipe: &Path, stop: &Arc<AtomicBool>) -> JoinHandle<String> {
    let (pipe, stop) = (pipe.to_owned(), Arc::clone(stop));
    thread::spawn(move || {
        let (mut log, mut pipe) = (Vec::new(), File::open(pipe).unwrap());
        let mut piece = [0; 4_096];
        loop {
            match pipe.read(&mut piece).unwrap() {
                0 => return String::from_utf8_lossy(&log).into_owned(),
                read => log.extend_from_slice(&piece[..read]),
            }
            if !stop.load(Ordering::Acquire) {
                sleep(Duration::from_millis(50));
            }
        }
    })
}

/// A client without a token wrote 76 MB of `request refused` a second into the log, in lines of
/// 8 KiB. The log of a slow reader then lost 20 of 20 lines about actions of operators.
fn refused_requests_do_not_flood_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("log");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (clients, stop) = (clients(), Arc::new(AtomicBool::new(false)));
    let reader = slow_reader(&pipe, &stop);
    let guarded = GuardedNode::start("", Some(&pipe));
    let node = &guarded.node;
    let long = "x".repeat(8_000);
    for address in [node.api, node.admin] {
        let host = get("GET", "/livez", &format!("u@{long}"));
        let action = get("POST", &format!("/drain?{long}"), "localhost");
        for request in [host.clone(), host, action, b"G@T / HTTP/1.1\r\n\r\n".to_vec()] {
            clients.spawn(floods(address, request));
        }
    }
    let watch = guarded.watch(&stop);
    sleep(span());
    let (_, metrics) = request(node.admin, "GET", "/metrics", &[], "");
    clients.shutdown_background();
    stop.store(true, Ordering::Release);
    let watched = watch.end("refused requests");
    watched.check(node);
    let memory = node.most_memory();
    guarded.node.stop();
    let log = reader.join().unwrap();
    check_memory(memory, &log);
    let longest = log.lines().map(str::len).max().unwrap();
    let refused = log.lines().filter(|line| line.contains("refused")).count();
    println!(
        "refused requests: {} KiB of log, {refused} lines of refused requests, the longest {longest} B",
        log.len() >> 10
    );
    let metrics = metrics.as_str().unwrap();
    metrics.lines().filter(|line| line.contains("lines_")).for_each(|line| println!("{line}"));
    watched.check_lines(&log);
    assert!(longest <= 1_024, "{longest}");
    // Both ports write five kinds of such lines, 20 of each in a second.
    assert!(log.len() as u64 <= 100_000 + 50_000 * span().as_secs(), "{}", log.len());
    assert!(refused > 20, "some lines are written: {log}");
}

fn main() {
    // Each client has an open file.
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let trials: [(&str, fn()); 3] = [
        ("unread_answers_give_way", unread_answers_give_way),
        ("unread_connections_hold_little_memory", unread_connections_hold_little_memory),
        ("refused_requests_do_not_flood_the_log", refused_requests_do_not_flood_the_log),
    ];
    let trials = trials.map(|(name, run)| {
        let run = move || {
            run();
            Ok(())
        };
        Trial::test(name, run)
    });
    // The trials measure times, so each trial has the machine for itself.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials.into()).exit();
}
