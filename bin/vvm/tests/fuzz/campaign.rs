//! A run: a node, clients that send requests, and the checks at the end.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, sleep},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;
use shop::http_client::{command_path, try_request};
use tempfile::TempDir;

use crate::{
    answers::{Promises, SharedPromises},
    followed::{Followed, FollowedLog},
    generator::{FuzzRequest, Generator},
    judge::{Counts, Judge, is_limit},
    known::{Known, WORKSPACES},
    logs,
    memory::MemorySamples,
    node::NodeProcess,
    routes::{Port, ROUTES, Sender},
    tokens::{ISSUER, Tokens},
    wire::{Client, Sent},
};

/// The clients that send at the same time.
const CLIENTS: usize = 16;

/// The largest run after which the check of the logs is proved: it reads all logs three more times.
const PROVED: u64 = 20_000;

/// The exit code of a node that was asked to step down.
const STEPPED_DOWN: i32 = 11;

/// Small limits, so that requests meet them, and memory that would be missed is seen.
const CONFIG: &str = r#"
[storage]
driver = "redb"
redb = { path = "vvm.redb", cache_bytes = 16777216 }

[http]
connections = 100
body_bytes = 65536
body_seconds = 0.2
bodies_bytes = 16777216
answers_bytes = 33554432
logs = 4
followers = 12

# A machine that stands still for some seconds ends no lease.
[node]
lease_seconds = 120
stop_seconds = 5

# No collector is there, so spans are made and dropped.
[traces]
endpoint = "http://127.0.0.1:9"
sample_ratio = 0.1
"#;

fn config() -> String {
    format!(
        "{CONFIG}\n[access]\nkeys_file = \"keys.json\"\nissuer = \"{ISSUER}\"\n\
        commands_per_second = 100000\n[log]\nformat = \"json\"\n"
    )
}

/// The parts of a run that all clients share.
struct Campaign<'a> {
    node: &'a NodeProcess,
    generator: &'a Generator,
    judge: Judge,
    promises: SharedPromises,
    followed: Followed,
    next: AtomicU64,
    requests: u64,
    failure: Mutex<Option<String>>,
}

/// Sends requests, and checks all answers, the process and its data.
pub(crate) fn run(requests: u64, seed: u64) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let tokens = Tokens::new(folder.path());
    let mut rng = fastrand::Rng::with_seed(seed);
    let operator = tokens.valid(Sender::Operator, &mut rng).unwrap().to_owned();
    let node = NodeProcess::start(folder.path(), &config()).ready();
    for ws in WORKSPACES {
        make_workspace(&node, ws, &operator)?;
    }
    let known = Arc::new(Known::new(member(&node, &operator)?));
    let generator = Generator::new(seed, tokens, known);
    let (next, failure) = (AtomicU64::new(0), Mutex::new(None));
    let promises = SharedPromises::default();
    let (node_ref, judge) = (&node, Judge::new());
    let campaign = Campaign {
        node: node_ref,
        generator: &generator,
        judge,
        promises,
        followed: Followed::default(),
        next,
        requests,
        failure,
    };
    let (mut counts, memory) = campaign.send_all();
    if let Some(failure) = campaign.failure.into_inner().unwrap() {
        return Err(format!("{failure}\n{}", symptoms(&node, &log_of(&node, &folder))));
    }
    let Campaign { promises, judge, followed, .. } = campaign;
    println!("{}", memory.judge(limit_of(&node)?)?);
    make_workspace(&node, 999_999, &operator)?;
    let totals = logs::check(&node, &generator, &promises.get(), &operator)?;
    println!("{totals:?}, {}", followed.report());
    followed.check(&node, &operator)?;
    if requests <= PROVED {
        prove_check(&node, &generator, &promises, &operator)?;
    }
    let folder = finish(node, &generator, &judge, &mut counts, folder)?;
    println!("answers by route, 0 without an answer:{}", counts.report());
    counts.judge()?;
    again(&folder, &generator, &promises, &operator, totals)
}

/// The check of the logs finds promises that are not kept: an answer that names another place, a
/// command that was lost, and one that was refused and done.
fn prove_check(
    node: &NodeProcess,
    generator: &Generator,
    promises: &SharedPromises,
    token: &str,
) -> Result<(), String> {
    let right = promises.get().clone();
    let alone = right.done.iter().find(|(_, offsets)| offsets.len() == 1);
    let (&number, offsets) = alone.ok_or("no request did one command")?;
    let (plog, wlog) = offsets[0];
    let with = |change: &dyn Fn(&mut Promises)| {
        let mut wrong = right.clone();
        change(&mut wrong);
        logs::check(node, generator, &wrong, token).err()
    };
    let found = [
        with(&|it| _ = it.done.insert(number, vec![(plog, wlog + 1)])),
        with(&|it| _ = it.done.insert(u64::MAX - 1, vec![(plog, wlog)])),
        with(&|it| _ = it.refused.insert(number)),
    ];
    match found.iter().position(Option::is_none) {
        None => Ok(()),
        Some(at) => Err(format!("the check of the logs does not find the wrong promise {at}")),
    }
}

impl Campaign<'_> {
    /// Sends all requests. Returns how often each route had each status.
    fn send_all(&self) -> (Counts, MemorySamples) {
        let mut memory = MemorySamples::default();
        let mut counts = Counts::default();
        let start = Instant::now();
        thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| self.client())).collect();
            let mut sampled = 0;
            while !clients.iter().all(thread::ScopedJoinHandle::is_finished) {
                memory.take(self.node.pid());
                let sent = self.next.load(Ordering::Relaxed).min(self.requests);
                if sent / 50_000 > sampled {
                    sampled = sent / 50_000;
                    println!("{sent} requests after {:?}", start.elapsed());
                }
                sleep(Duration::from_millis(100));
            }
            for client in clients {
                counts.add(client.join().unwrap());
            }
        });
        println!("{} requests in {:?}", self.requests, start.elapsed());
        (counts, memory)
    }

    fn client(&self) -> Counts {
        let mut counts = Counts::default();
        let (mut api, mut admin) = (Client::new(self.node.api), Client::new(self.node.admin));
        let mut keyed: Option<(FuzzRequest, Sent)> = None;
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.requests {
                return counts;
            }
            let request = self.generator.request(number);
            let client = if request.route.port == Port::Api { &mut api } else { &mut admin };
            match self.send(client, &request) {
                Ok(sent) => {
                    counts.count(request.route.name, &sent);
                    // A command with a key is sent again, after others.
                    if let Some((earlier, first)) = keyed.take_if(|_| number.is_multiple_of(3))
                        && let Err(wrong) = self.again(&mut api, &earlier, &first)
                    {
                        self.fail(&earlier, &wrong);
                    }
                    // A refused command with a key is tried again, and may then be done.
                    let is_done = matches!(
                        &sent,
                        Sent::Answered(answer) if answer.status < 300 && !has_refused(&answer.body)
                    );
                    if request.is_keyed && request.is_valid && is_done && keyed.is_none() {
                        keyed = Some((request, sent));
                    }
                }
                Err(wrong) => self.fail(&request, &wrong),
            }
        }
    }

    fn send(&self, client: &mut Client, request: &FuzzRequest) -> Result<Sent, String> {
        let followed = FollowedLog::of(request, &self.promises.get());
        let sent = client.send(request)?;
        self.judge.judge(request, &sent)?;
        if let (Some(log), Sent::Answered(answer)) = (followed, &sent) {
            self.followed.judge(&log, answer)?;
        }
        self.promises.note(self.generator, request, &sent)?;
        Ok(sent)
    }

    /// Sends a command again. The answer must be the first one.
    fn again(
        &self,
        client: &mut Client,
        earlier: &FuzzRequest,
        first: &Sent,
    ) -> Result<(), String> {
        let again = client.send(earlier)?;
        let (Sent::Answered(first), Sent::Answered(again)) = (first, again) else { return Ok(()) };
        if is_limit(again.status) {
            return Ok(());
        }
        let json = |body: &[u8]| serde_json::from_slice::<Value>(body).unwrap_or_default();
        let (mut expected, found) = (json(&first.body), json(&again.body));
        let is_same = match (answers_of(&mut expected), found["answers"].as_array()) {
            // A command of a batch that was refused runs again.
            (Some(expected), Some(found)) => expected.iter_mut().zip(found).all(|(one, found)| {
                one["repeated"] = Value::Bool(true);
                one["status"] != 200 || one == found
            }),
            _ => {
                expected["repeated"] = Value::Bool(true);
                found == expected
            }
        };
        match again.status == first.status && is_same {
            true => Ok(()),
            false => Err(format!("the second answer is {} {found}", again.status)),
        }
    }

    /// Notes the first failure, and ends the run.
    fn fail(&self, request: &FuzzRequest, wrong: &str) {
        self.next.store(self.requests, Ordering::Relaxed);
        let shown =
            |bytes: &[u8]| bytes.escape_ascii().to_string().chars().take(4_000).collect::<String>();
        let text = format!(
            "request {} ({}): {wrong}\nhead: {}\nbody ({} bytes): {}",
            request.number,
            request.route.name,
            shown(&request.head),
            request.body.len(),
            shown(&request.body),
        );
        self.failure.lock().unwrap().get_or_insert(text);
    }
}

/// Whether a command of a batch was refused. Sent again, it may be done.
fn has_refused(body: &[u8]) -> bool {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let mut answers = body["answers"].as_array().into_iter().flatten();
    answers.any(|answer| answer["status"] != 200)
}

/// The answers to the commands of a batch.
fn answers_of(answer: &mut Value) -> Option<&mut Vec<Value>> {
    answer.get_mut("answers")?.as_array_mut()
}

fn make_workspace(node: &NodeProcess, ws: u64, token: &str) -> Result<(), String> {
    let path = command_path(ws, "sys.CreateWorkspace");
    let body = r#"{"args":{"kind":"Shop"}}"#;
    let answer = try_request(node.api, "POST", &path, &[("authorization", token)], body);
    match answer.map_err(|error| error.to_string())? {
        (200, _) => Ok(()),
        (status, body) => Err(format!("a workspace was not made: {status} {body}")),
    }
}

/// The id of the node as a member of its cluster.
fn member(node: &NodeProcess, token: &str) -> Result<String, String> {
    let answer = try_request(node.admin, "GET", "/cluster", &[("authorization", token)], "");
    let (_, body) = answer.map_err(|error| error.to_string())?;
    let status: Value = serde_json::from_str(&body).map_err(|error| error.to_string())?;
    let id = status["members"][0]["id"].as_str().map(str::to_owned);
    id.ok_or_else(|| format!("no member: {status}"))
}

/// The most memory that the node takes, as it said at its start.
fn limit_of(node: &NodeProcess) -> Result<u64, String> {
    let log = node.log_text();
    let starts = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mib = starts.filter_map(|line| line["fields"]["memory_mib"].as_u64()).next();
    mib.ok_or_else(|| "the node named no limit of its memory".to_owned())
}

/// Sends the requests that end the work of the node, waits for its end, and reads its log.
fn finish(
    mut node: NodeProcess,
    generator: &Generator,
    judge: &Judge,
    counts: &mut Counts,
    folder: TempDir,
) -> Result<TempDir, String> {
    let mut admin = Client::new(node.admin);
    for route in ROUTES.iter().filter(|route| route.is_last) {
        let request = generator.valid(u64::MAX, route);
        let sent = admin.send(&request)?;
        judge.judge(&request, &sent)?;
        counts.count(route.name, &sent);
    }
    let code = node.ended().code();
    if code != Some(STEPPED_DOWN) {
        return Err(format!("the node ended with {code:?}: {}", node.log_text()));
    }
    check_process_log(&log_of(&node, &folder))?;
    Ok(folder)
}

fn log_of(node: &NodeProcess, folder: &TempDir) -> PathBuf {
    folder.path().join(format!("{}.log", node.api.port()))
}

/// What the node itself says about a failure.
fn symptoms(node: &NodeProcess, log: &Path) -> String {
    let (_, metrics) = try_request(node.admin, "GET", "/metrics", &[], "").unwrap_or_default();
    let closed = metrics.lines().filter(|line| line.starts_with("httpapi_connections"));
    let closed: Vec<&str> = closed.collect();
    format!("{}\nthe log: {:?}", closed.join("\n"), check_process_log(log))
}

/// The log has no panic and no error. It is too long to be shown.
fn check_process_log(log: &Path) -> Result<(), String> {
    for line in BufReader::new(fs::File::open(log).unwrap()).split(b'\n') {
        let line = String::from_utf8_lossy(&line.unwrap()).into_owned();
        let json: Option<Value> = serde_json::from_str(&line).ok();
        let level = json.as_ref().and_then(|line| line["level"].as_str());
        let is_wrong = match level {
            Some(level) => level == "ERROR" && !line.contains("asked to step down"),
            None => line.contains("panicked") || line.contains("overflow"),
        };
        if is_wrong {
            return Err(format!("the log has the line {line}"));
        }
    }
    Ok(())
}

/// Starts the node again. Its data must be the same.
fn again(
    folder: &TempDir,
    generator: &Generator,
    promises: &SharedPromises,
    token: &str,
    before: logs::LogTotals,
) -> Result<(), String> {
    let node = NodeProcess::start(folder.path(), &config()).ready();
    let totals = logs::check(&node, generator, &promises.get(), token)?;
    if totals != before {
        return Err(format!("after a start the logs have {totals:?}, and {before:?} before"));
    }
    node.signal(Signal::TERM);
    Ok(())
}
