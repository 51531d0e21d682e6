//! Nodes as processes on one storage: one node leads, and the others wait and take over.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

#[path = "support/cluster_command.rs"]
mod cluster_command;
#[path = "support/cluster_moves.rs"]
mod cluster_moves;
#[path = "support/cluster_traces.rs"]
mod cluster_traces;
#[allow(dead_code, reason = "the suite of traces needs more of it")]
#[path = "support/collector.rs"]
mod collector;
#[path = "support/fixture.rs"]
mod fixture;
#[path = "support/load.rs"]
mod load;
#[path = "support/node.rs"]
mod node;
#[path = "support/proxy.rs"]
mod proxy;

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use cluster_command::{one_command, one_part_fails};
use cluster_moves::{different_applications, moved};
use cluster_traces::traced;
use fixture::{Storage, StorageFixture};
use libtest_mimic::{Arguments, Trial};
use load::{AcknowledgedCommands, CommandLoad, has};
use node::NodeProcess;
use proxy::{Passing, Proxy};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use shop::http_client::{request, try_request, workspace_path};
use tck::trial::is_long;

/// The length of a lease.
const LEASE: Duration = Duration::from_secs(10);

fn config(fixture: &StorageFixture, storage: &Storage) -> String {
    let storage = fixture.config(storage);
    let node = format!("[node]\nlease_seconds = {}\nacquire_seconds = 0\n", LEASE.as_secs());
    format!("{storage}{node}[cluster]\nseats = 1\n")
}

fn start(fixture: &StorageFixture, name: &str) -> NodeProcess {
    fixture.start(name, &config(fixture, &fixture.storage))
}

/// Returns the longest time during which no command was done.
fn longest_pause(known: &AcknowledgedCommands) -> Duration {
    let mut moments: Vec<Instant> = known.done.iter().map(|(_, at, _)| *at).collect();
    moments.sort();
    moments.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
}

/// Returns a bound that a node logs when it begins to wait.
fn logged_bound(node: &NodeProcess, name: &str) -> Duration {
    let log = node.log_text();
    let line = log.lines().find(|line| line.contains("failover")).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    let bound = line["fields"][name].as_str().unwrap().strip_suffix('s').unwrap();
    Duration::from_secs_f64(bound.parse().unwrap())
}

/// The leader is killed under load. The standby has all acknowledged commands, and works within the
/// promised time.
fn killed(fixture: &StorageFixture) {
    for with_keys in [false, true] {
        let tag = if with_keys { "keys" } else { "plain" };
        let mut first = start(fixture, "first").ready();
        let second = start(fixture, "second");
        second.until("/livez", |status| status == 200);
        (1..=4).for_each(|ws| first.create_workspace(ws));
        let load = CommandLoad::start(tag, vec![first.api, second.api], 4, with_keys);
        load.until_more(50);
        first.signal(Signal::KILL);
        first.ended();
        load.until_more(50);
        let known = load.stop();
        let (pause, bound) = (longest_pause(&known), logged_bound(&second, "failover"));
        assert!(pause < bound, "nothing was done for {pause:?}, and {bound:?} are promised");
        known.check(&[&second], 4);
        second.stop();
    }
}

/// The leader stands still for longer than its lease. When it goes on, it must neither write nor
/// answer with data, and must end.
fn frozen(fixture: &StorageFixture) {
    let mut first = start(fixture, "first").ready();
    let second = start(fixture, "second");
    second.until("/livez", |status| status == 200);
    (1..=4).for_each(|ws| first.create_workspace(ws));
    let load = CommandLoad::start("a", vec![first.api, second.api], 4, true);
    load.until_more(50);
    first.signal(Signal::STOP);
    second.until("/readyz", |status| status == 200);
    load.until_more(50);
    // Clients ask the leader while it stands still. The leader may answer when it goes on, but must
    // not return data that it knew before.
    let path = format!("{}/wlog", workspace_path(1));
    let asked: Vec<_> = (0..16)
        .map(|_| {
            let (api, path) = (first.api, path.clone());
            std::thread::spawn(move || try_request(api, "GET", &path, &[], ""))
        })
        .collect();
    std::thread::sleep(Duration::from_millis(200));
    first.signal(Signal::CONT);
    for asked in asked {
        if let Ok((status, answer)) = asked.join().unwrap() {
            assert_eq!(status, 503, "it read out a log under a leadership that was over: {answer}");
        }
    }
    let code = first.ended().code();
    assert!(matches!(code, Some(7 | 10)), "{code:?}: {}", first.log_text());
    load.until_more(50);
    let known = load.stop();
    known.check(&[&second], 4);
    second.stop();
}

/// Returns a proxy to a storage, and the storage behind the proxy.
fn through_proxy(storage: &Storage) -> (Proxy, Storage) {
    match storage {
        Storage::Redb => panic!("it has no server"),
        Storage::Cassandra(address) => {
            let proxy = Proxy::start(address);
            let there = Storage::Cassandra(proxy.address.to_string());
            (proxy, there)
        }
        Storage::DynamoDb(endpoint) => {
            let proxy = Proxy::start(endpoint);
            let there = Storage::DynamoDb(format!("http://{}", proxy.address));
            (proxy, there)
        }
    }
}

/// Many clients load a node while its storage is slow, then fails, and then works again. Refused
/// commands say why, the node goes on by itself, and no acknowledged command is lost.
fn busy(fixture: &StorageFixture) {
    const CLIENTS: u64 = 40;
    let (proxy, there) = through_proxy(&fixture.storage);
    let config = format!(
        "{}[node]\nlease_seconds = 60\ncall_seconds = 1\n[http]\nqueue = 1\ncommand_seconds = 4\n",
        fixture.config(&there)
    );
    let node = fixture.start("node", &config).ready();
    (1..=CLIENTS).for_each(|ws| node.create_workspace(ws));
    let load = CommandLoad::start("a", vec![node.api], CLIENTS, true);
    load.until_more(200);

    // Four clients share a partition. One command is being written, and one waits for it.
    load.take_refused();
    proxy.set(Passing::Late(Duration::from_millis(100)));
    load.until_more(100);
    let refused = load.take_refused();
    assert!(refused.contains_key("queue_full"), "{refused:?}");
    assert!(
        refused.keys().all(|code| ["queue_full", "timed_out"].contains(&&**code)),
        "{refused:?}"
    );
    assert_eq!(request(node.admin, "GET", "/readyz", &[], "").0, 200, "other commands are done");

    proxy.set(Passing::Closed);
    node.until("/readyz", |status| status == 503);
    load.take_refused();
    let start = Instant::now();
    while !load.refused_with("storage") {
        assert!(start.elapsed() < node::PATIENCE, "{:?}", load.take_refused());
        std::thread::sleep(Duration::from_millis(10));
    }

    proxy.set(Passing::Whole);
    node.until("/readyz", |status| status == 200);
    load.until_more(200);
    load.take_refused();
    load.until_more(200);
    let refused = load.take_refused();
    assert!(!refused.contains_key("storage"), "{refused:?}");
    let known = load.stop();
    known.check(&[&node], CLIENTS);
    node.stop();
}

/// The leader is cut off from its storage. The leader ends, and another node leads.
fn cut_off(fixture: &StorageFixture) {
    let (proxy, there) = through_proxy(&fixture.storage);
    let mut first = fixture.start("first", &config(fixture, &there)).ready();
    first.create_workspace(1);
    let second = start(fixture, "second");
    second.until("/livez", |status| status == 200);
    let start = Instant::now();
    proxy.set(Passing::Nothing);
    // Nothing of the answer was sent yet, so the node can still answer with the reason.
    let (status, answer) =
        request(first.api, "GET", &format!("{}/wlog", workspace_path(1)), &[], "");
    assert_eq!(status, 503, "{answer}");
    assert!(["storage", "not_owner"].contains(&answer["code"].as_str().unwrap()), "{answer}");
    assert_eq!(first.ended().code(), Some(7), "{}", first.log_text());
    assert!(start.elapsed() < LEASE, "it stopped after {:?}", start.elapsed());
    second.until("/readyz", |status| status == 200);
    assert_eq!(second.logged(1).len(), 1);
    second.stop();
}

/// The first node leads and the second waits. The first stops, the second leads, and the first
/// waits. The nodes repeat this.
fn in_turn(fixture: &StorageFixture) {
    let leads = |node: &NodeProcess| request(node.admin, "GET", "/readyz", &[], "").0 == 200;
    let mut leader = start(fixture, "first").ready();
    for turn in 0..3 {
        let name = if turn % 2 == 0 { "second" } else { "first" };
        let standby = start(fixture, name);
        standby.until("/livez", |status| status == 200);
        let (status, answer) = standby.command(1, "sys.CUD", "{}");
        assert_eq!((status, answer["code"].as_str()), (503, Some("not_owner")), "{answer}");
        assert!(leads(&leader) && !leads(&standby));
        // The standby names the leader as soon as it knows the leader.
        let start = Instant::now();
        while standby.command(1, "sys.CUD", "{}").1["owner"] != leader.api.to_string() {
            assert!(start.elapsed() < node::PATIENCE, "it does not know who leads");
            std::thread::sleep(Duration::from_millis(50));
        }
        let start = Instant::now();
        leader.stop();
        leader = standby.ready();
        assert!(start.elapsed() < LEASE, "it waited for the end of a lease that was given away");
    }
    leader.stop();
}

/// Three nodes for two seats: two nodes share the partitions, and the third takes over from the one
/// that dies. The other owner does not notice.
fn two_seats(fixture: &StorageFixture) {
    /// The partitions move in the order of their numbers, so there is a workspace in each.
    const WORKSPACES: u64 = 10;
    let config = config(fixture, &fixture.storage).replace("seats = 1", "seats = 2");
    let mut first = fixture.start("first", &config).ready();
    (1..=WORKSPACES).for_each(|ws| first.create_workspace(ws));
    let second = fixture.start("second", &config).ready();
    let third = fixture.start("third", &config);
    third.until("/livez", |status| status == 200);
    let start = Instant::now();
    while !(1..=WORKSPACES).any(|ws| has(&second, ws))
        || !(1..=WORKSPACES).any(|ws| has(&first, ws))
    {
        assert!(start.elapsed() < node::PATIENCE, "the second node gets no partitions");
        std::thread::sleep(Duration::from_millis(100));
    }
    for ws in 1..=WORKSPACES {
        let other = if has(&first, ws) { &second } else { &first };
        let (status, answer) = other.command(ws, "sys.CUD", "{}");
        assert_eq!((status, answer["code"].as_str()), (503, Some("not_owner")), "{answer}");
    }
    let (_, status) = request(third.admin, "GET", "/status", &[], "");
    let leaders = status["node"]["leaders"].as_object().unwrap();
    let leaders: Vec<&str> = leaders.values().map(|leader| leader.as_str().unwrap()).collect();
    for node in [&first, &second] {
        assert!(leaders.contains(&node.api.to_string().as_str()), "{status}");
    }
    let of_second: Vec<String> =
        (1..=WORKSPACES).filter(|ws| has(&second, *ws)).map(|ws| format!("{ws}-")).collect();

    let load = CommandLoad::start("a", vec![first.api, second.api, third.api], WORKSPACES, true);
    load.until_more(50);
    first.signal(Signal::KILL);
    first.ended();
    third.until("/readyz", |status| status == 200);
    load.until_more(50);
    let mut known = load.stop();
    known.check(&[&second, &third], WORKSPACES);
    known.done.retain(|(name, ..)| of_second.iter().any(|of| name.starts_with(of)));
    let pause = longest_pause(&known);
    assert!(pause < LEASE / 2, "the partitions of the other owner paused for {pause:?}");
    second.stop();
    third.stop();
}

/// A running `vvm bench` over several nodes.
struct Bench(Child);

impl Bench {
    fn start(nodes: &[NodeProcess], rest: &[&str]) -> Bench {
        let apis: Vec<String> = nodes.iter().map(|node| node.api.to_string()).collect();
        let child = Command::new(env!("CARGO_BIN_EXE_vvm"))
            .args(["bench", "--json", "--check", "--seconds", "600", "--node", &apis.join(",")])
            .args(rest)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Bench(child)
    }

    /// Stops the bench, and returns its report.
    fn stop(self) -> Value {
        kill_process(Pid::from_child(&self.0), Signal::INT).unwrap();
        let report = self.0.wait_with_output().unwrap();
        serde_json::from_slice(&report.stdout).unwrap()
    }
}

/// Waits until the log of a workspace has this many more events.
fn until_more_events(node: &NodeProcess, ws: u64, count: usize) {
    let (start, before) = (Instant::now(), node.logged(ws).len());
    while node.logged(ws).len() < before + count {
        assert!(start.elapsed() < node::PATIENCE, "no commands are done");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Three nodes with cluster ports.
struct ThreeNodes<'f> {
    fixture: &'f StorageFixture,
    ports: [std::net::SocketAddr; 3],
    nodes: Vec<NodeProcess>,
}

impl ThreeNodes<'_> {
    const NAMES: [&'static str; 3] = ["first", "second", "third"];

    /// Starts the nodes, and waits until they share the partitions.
    fn start(fixture: &StorageFixture) -> ThreeNodes<'_> {
        let ports = Self::NAMES.map(|_| node::free());
        let mut three = ThreeNodes { fixture, ports, nodes: Vec::new() };
        for at in 0..3 {
            three.nodes.push(fixture.start(Self::NAMES[at], &three.config(at)).ready());
        }
        three.nodes[0].create_workspace(1);
        three.until_shared();
        three
    }

    fn config(&self, at: usize) -> String {
        format!(
            "{}[node]\nlease_seconds = {}\nacquire_seconds = 0\n\
             [cluster]\nseats = 3\nlisten = \"{}\"\n",
            self.fixture.config(&self.fixture.storage),
            LEASE.as_secs(),
            self.ports[at]
        )
    }

    fn until_shared(&self) {
        let start = Instant::now();
        let counts = || {
            let (_, status) = request(self.nodes[0].admin, "GET", "/cluster", &[], "");
            let members = status["members"].as_array().unwrap().iter();
            let mut counts: Vec<_> =
                members.map(|member| member["partitions"].as_u64().unwrap()).collect();
            counts.sort_unstable();
            counts
        };
        while counts() != [3, 3, 4] {
            assert!(start.elapsed() < node::PATIENCE, "{:?}", counts());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn restart(&mut self, at: usize) {
        let stopped = self.nodes.remove(at);
        let (api, admin) = (stopped.api, stopped.admin);
        stopped.stop();
        until_more_events(&self.nodes[0], 1, 20);
        let config = self.config(at);
        let again = self.fixture.start_at(Self::NAMES[at], &config, api, admin).ready();
        self.nodes.insert(at, again);
    }

    fn stop(self) {
        self.nodes.into_iter().for_each(NodeProcess::stop);
    }
}

/// No client got an error, and the logs agree with the answers.
fn assert_clean(report: &Value) {
    assert_eq!(report["failed"], serde_json::json!({}), "{report}");
    let check = &report["check"];
    let faults = ["lost", "doubled", "doneAlthoughRefused"].map(|of| check[of].as_u64().unwrap());
    assert_eq!(faults, [0; 3], "{report}");
}

/// No client gets an error while three nodes are restarted in turn under load: a client asks the
/// next node only if nothing was done, as a load balancer does.
fn rolling(fixture: &StorageFixture) {
    let mut three = ThreeNodes::start(fixture);
    // More clients are too many for a server that shares two processors with three debug builds:
    // its writes end by time, and their outcomes are unknown.
    let clients = if is_long() { "64" } else { "8" };
    let bench = Bench::start(&three.nodes, &["--clients", clients, "--workspaces", "20"]);
    until_more_events(&three.nodes[0], 1, 50);
    for at in 0..3 {
        three.restart(at);
        until_more_events(&three.nodes[0], 1, 20);
    }
    let report = bench.stop();
    assert_clean(&report);
    // A restart needs a few calls of the storage, one after another, and a busy machine makes each
    // of them as slow as a command.
    let slow = 1_500_000 + 10 * report["micros"]["p50"].as_u64().unwrap();
    assert!(report["longestPauseMicros"].as_u64().unwrap() < slow, "{report}");
    assert!(report["micros"]["p999"].as_u64().unwrap() < slow, "{report}");
    assert_eq!(report["nodes"].as_object().unwrap().len(), 3, "{report}");
    three.stop();
}

/// An owner is killed. Commands with keys are sent again, by clients and by nodes, and all of them
/// are done once, within the bound that a node logs.
fn killed_owner(fixture: &StorageFixture) {
    let mut three = ThreeNodes::start(fixture);
    let bench = Bench::start(&three.nodes, &["--clients", "16", "--workspaces", "20", "--keys"]);
    until_more_events(&three.nodes[0], 1, 50);
    let mut killed = three.nodes.remove(1);
    killed.signal(Signal::KILL);
    killed.ended();
    until_these_own_all(&three.nodes);
    let report = bench.stop();
    assert_clean(&report);
    assert_within_takeover(&report, &three.nodes[0]);
    three.stop();
}

/// Two of three nodes stand still, as owners of partitions and as the nodes that clients ask. The
/// third one takes over.
fn frozen_nodes(fixture: &StorageFixture) {
    let mut three = ThreeNodes::start(fixture);
    let bench = Bench::start(&three.nodes, &["--clients", "16", "--workspaces", "20", "--keys"]);
    until_more_events(&three.nodes[0], 1, 50);
    let mut frozen = three.nodes.split_off(1);
    frozen.iter().for_each(|node| node.signal(Signal::STOP));
    until_these_own_all(&three.nodes);
    until_more_events(&three.nodes[0], 1, 20);
    frozen.iter().for_each(|node| node.signal(Signal::CONT));
    for node in &mut frozen {
        let code = node.ended().code();
        assert!(matches!(code, Some(7 | 10)), "{code:?}: {}", node.log_text());
    }
    let report = bench.stop();
    assert_clean(&report);
    // A try at a frozen node takes 12 s, and up to three tries may be needed.
    let longest = report["micros"]["max"].as_u64().unwrap();
    assert!(longest < 45_000_000, "{report}");
    three.stop();
}

/// Waits until the nodes that are left own all partitions, and the partitions are ready.
fn until_these_own_all(nodes: &[NodeProcess]) {
    let start = Instant::now();
    let apis: Vec<String> = nodes.iter().map(|node| node.api.to_string()).collect();
    loop {
        let (_, status) = request(nodes[0].admin, "GET", "/cluster", &[], "");
        let is_fine = |partition: &Value| {
            let owner = partition["owner"].as_str();
            partition["state"] == "ready"
                && owner.is_some_and(|it| apis.iter().any(|api| api == it))
        };
        if status["partitions"].as_array().unwrap().iter().all(is_fine) {
            return;
        }
        assert!(start.elapsed() < node::PATIENCE, "{status}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Each command was done within the bound of a takeover that a node logs.
fn assert_within_takeover(report: &Value, node: &NodeProcess) {
    let bound = logged_bound(node, "takeover");
    let longest = Duration::from_micros(report["micros"]["max"].as_u64().unwrap());
    assert!(longest < bound, "a command took {longest:?}, and {bound:?} are promised");
    // The bound would show nothing if no command had waited for the takeover.
    assert!(longest > LEASE / 4, "no command waited: {report}");
}

type Run = fn(&StorageFixture);

fn main() {
    let arguments = Arguments::from_args();
    let trials: [(&str, Run); 14] = [
        ("commands_with_keys_are_done_once_although_an_owner_is_killed", killed_owner),
        ("commands_with_keys_are_done_once_although_two_of_three_nodes_stand_still", frozen_nodes),
        ("partitions_are_moved_under_load_and_no_client_gets_an_error", moved),
        ("a_node_owns_only_partitions_of_applications_that_it_has", different_applications),
        ("one_command_starts_three_nodes_and_stops_them", one_command),
        ("one_command_stops_what_it_started_if_a_node_does_not_start", one_part_fails),
        ("nodes_share_the_partitions_and_take_over_from_one_that_dies", two_seats),
        ("nodes_are_restarted_in_turn_under_load_and_no_client_gets_an_error", rolling),
        ("another_node_takes_over_from_a_leader_that_is_killed_under_load", killed),
        ("another_node_takes_over_from_a_leader_that_is_suspended_past_its_lease", frozen),
        ("another_node_takes_over_from_a_leader_that_is_cut_off_from_its_storage", cut_off),
        ("a_node_under_load_is_busy_while_its_storage_is_slow_or_fails", busy),
        ("nodes_lead_in_turn", in_turn),
        ("a_forwarded_request_is_one_trace_over_two_nodes", traced),
    ];
    // Only one process can use a redb file.
    let servers = Storage::all().into_iter().filter(|(name, _)| *name != "redb");
    let three = std::env::var("VVM_TEST_CASSANDRA_CLUSTER").ok().filter(|_| is_long());
    let on_three = [trials[0], trials[6], trials[7]];
    // These depend on how leases expire. The others take minutes, and do not depend on the storage.
    let on_dynamodb = [trials[8], trials[10]];
    // Rounds of faults also pause nodes, cut them off from their storage, and let them step down.
    let on_cassandra = [0, 2, 3, 4, 6, 7, 8, 13].map(|number: usize| trials[number]);
    let servers = servers.map(|(name, storage)| match name {
        _ if is_long() => (name, storage, trials.to_vec()),
        "dynamodb" => (name, storage, on_dynamodb.to_vec()),
        _ => (name, storage, on_cassandra.to_vec()),
    });
    let three = ("three_cassandra_servers", three.map(Storage::Cassandra), on_three.to_vec());
    let trials = servers.chain([three]).flat_map(|(server, storage, trials)| {
        trials.into_iter().map(move |(name, trial)| {
            let (storage, is_ignored) = (storage.clone(), storage.is_none());
            let run = move || {
                trial(&StorageFixture::new(storage.unwrap()));
                Ok(())
            };
            Trial::test(format!("{server}::{name}"), run).with_ignored_flag(is_ignored)
        })
    });
    // Each trial runs alone with its processes and servers: leases expire even if the machine is
    // busy.
    let arguments = Arguments { test_threads: Some(1), ..arguments };
    assert!(Path::new(env!("CARGO_BIN_EXE_vvm")).exists());
    libtest_mimic::run(&arguments, trials.collect()).exit();
}
