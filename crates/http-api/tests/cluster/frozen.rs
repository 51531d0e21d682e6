//! A peer that takes requests and never answers: its requests are bounded, and other partitions do
//! not notice. The proxy between the nodes holds back all bytes.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use http_api::HttpApiSettings;
use shop::http_client::{command_path, logged, request, try_request, workspace_path};

use crate::support::{
    ClusterNode, HANGING_WS, NodeOptions, Oracle, Proxy, ROW, TestCluster, WS, connect,
};

/// How long the entry waits.
const TIME: Duration = Duration::from_millis(1_500);

/// The number of requests that one partition may hold. A peer may hold twice as many.
const MOST: usize = 64;

fn limited(settings: &mut HttpApiSettings) {
    settings.command_time = TIME;
    settings.limits.connections = 8 * MOST;
    settings.bodies_bytes = 8 * (200 << 10);
}

/// Nodes with two seats: one owns workspace 2, and the other one, behind the proxy, all the others.
/// A third node owns nothing.
struct Nodes {
    proxy: Proxy,
    behind: ClusterNode,
    other: ClusterNode,
    entry: ClusterNode,
}

impl Nodes {
    fn start() -> Nodes {
        Nodes::with(limited)
    }

    fn with(change: fn(&mut HttpApiSettings)) -> Nodes {
        let cluster = TestCluster::new();
        let options = |proxy| NodeOptions { seats: Some(2), proxy, ..NodeOptions::default() };
        let proxy = Proxy::start();
        let behind = cluster.owner(options(Some(proxy.address)));
        proxy.leads_to(behind.cluster);
        let other = cluster.beside(&behind, options(None));
        other.take(2);
        behind.create_workspace(3);
        behind.create_workspace(5);
        other.create_workspace(2);
        let entry = cluster.entry(NodeOptions { change: Some(change), ..options(None) });
        Nodes { proxy, behind, other, entry }
    }

    fn stop(self) {
        let Nodes { proxy, behind, other, entry } = self;
        proxy.hold(false);
        entry.stop();
        behind.stop();
        other.stop();
    }
}

/// Sends commands at the same time. Returns the statuses, the codes and the times of the answers.
fn burst(
    api: SocketAddr,
    ids: impl Iterator<Item = (u64, String)>,
) -> Vec<(String, u16, String, Duration)> {
    let send = |(ws, id): (u64, String)| {
        thread::spawn(move || {
            let start = Instant::now();
            let headers = [("x-request-id", &*id)];
            let (status, answer) =
                request(api, "POST", &command_path(ws, "sys.CUD"), &headers, ROW);
            let code = answer["code"].as_str().unwrap_or_default().to_owned();
            (id, status, code, start.elapsed())
        })
    };
    let sent: Vec<_> = ids.map(send).collect();
    sent.into_iter().map(|client| client.join().unwrap()).collect()
}

#[test]
fn requests_for_a_frozen_owner_are_bounded() {
    let nodes = Nodes::start();
    let entry = nodes.entry.api;
    assert_eq!(nodes.entry.command(1, "sys.CUD", ROW).0, 200);
    nodes.proxy.hold(true);
    let mut oracle = Oracle::default();
    let answers = burst(entry, (0..MOST + 20).map(|number| (1, format!("one-{number}"))));
    let busy = answers.iter().filter(|(_, _, code, _)| code == "partition_busy").count();
    assert_eq!(busy, 20, "{answers:?}");
    for (id, status, code, time) in answers {
        match &*code {
            "partition_busy" => assert!(time < TIME / 2, "{time:?}"),
            _ => assert!(time >= TIME && time < 2 * TIME, "{code}: {time:?}"),
        }
        oracle.note(id, status);
    }
    // Three partitions of the same owner share its limit.
    let all =
        (0..3 * (MOST - 10)).map(|number| (1 + 2 * (number as u64 % 3), format!("all-{number}")));
    let answers = burst(entry, all);
    let busy = answers.iter().filter(|(_, _, code, _)| code == "peer_busy").count();
    assert_eq!(busy, MOST - 30, "{answers:?}");
    let of_first = |id: &str| id[4..].parse::<usize>().unwrap().is_multiple_of(3);
    for (id, status, ..) in answers.into_iter().filter(|answer| of_first(&answer.0)) {
        oracle.note(id, status);
    }
    nodes.proxy.hold(false);
    nodes.entry.wait_for(|node| node.command(1, "sys.CUD", ROW).0 == 200);
    assert_eq!(oracle.count(200), 0);
    oracle.check(&logged(nodes.behind.api, 1));
    nodes.stop();
}

#[test]
fn bodies_for_a_frozen_owner_are_bounded() {
    let nodes = Nodes::start();
    nodes.proxy.hold(true);
    let text = "x".repeat(120 << 10);
    let body = format!(r#"{{"fields":{{"name":"{text}"}}}}"#);
    let path = |ws| format!("{}/docs/shop.Article", workspace_path(ws));
    let (api, first, large) = (nodes.entry.api, path(1), body.clone());
    let waits = thread::spawn(move || request(api, "POST", &first, &[], &large));
    let memory = "httpapi_memory_reserved_bytes{of=\"bodies\"}";
    nodes.entry.wait_for(|node| node.metric(memory) > 100_000.0);
    thread::sleep(Duration::from_millis(100));
    let start = Instant::now();
    let second = nodes.entry.ask("POST", &path(1), "", &body);
    assert_eq!((second.status, second.code().as_str()), (503, "partition_busy"));
    assert!(start.elapsed() < TIME / 2);
    assert_eq!(nodes.entry.ask("POST", &path(2), "", &body).status, 201, "another owner has room");
    assert_eq!(waits.join().unwrap().0, 504);
    nodes.stop();
}

#[test]
fn a_frozen_owner_does_not_slow_other_partitions() {
    const SPAN: Duration = Duration::from_millis(1_000);
    let nodes = Nodes::start();
    let entry = nodes.entry.api;
    let rate = || {
        let count = move || {
            let (start, mut done) = (Instant::now(), 0);
            while start.elapsed() < SPAN {
                assert_eq!(request(entry, "POST", &command_path(2, "sys.CUD"), &[], ROW).0, 200);
                done += 1;
            }
            done
        };
        let clients: Vec<_> = (0..4).map(|_| thread::spawn(count)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum::<usize>()
    };
    let before = rate();
    nodes.proxy.hold(true);
    let frozen = thread::spawn(move || burst(entry, (0..MOST + 40).map(|n| (1, format!("f-{n}")))));
    let meanwhile = rate();
    frozen.join().unwrap();
    nodes.proxy.hold(false);
    let after = rate();
    // A bench measures this exactly. Here other tests run at the same time.
    assert!(meanwhile * 3 > before.min(after), "{meanwhile} between {before} and {after}");
    nodes.stop();
}

/// The storage of one partition hung. Its requests took all connections to the owner, and the owner
/// got no request for its other partitions.
#[test]
fn a_partition_that_hangs_leaves_connections_for_others() {
    let cluster = TestCluster::new();
    let owner = cluster.owner(NodeOptions::default());
    let entry = cluster.entry(NodeOptions::default());
    owner.create_workspace(HANGING_WS);
    let read = |ws| format!("{}/docs/shop.Article/70000", workspace_path(ws));
    assert_eq!(entry.ask("GET", &read(HANGING_WS), "", "").status, 404);
    cluster.hang(true);
    let (api, path) = (entry.api, read(HANGING_WS));
    let waiting: Vec<_> = (0..100)
        .map(|_| {
            let path = path.clone();
            thread::spawn(move || request(api, "GET", &path, &[], "").0)
        })
        .collect();
    // Half of the connections.
    owner.wait_for(|node| node.metric("httpapi_connections{service=\"cluster\"}") >= 32.0);
    for _ in 0..20 {
        let start = Instant::now();
        assert_eq!(entry.ask("GET", &read(WS), "", "").status, 404);
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    }
    cluster.hang(false);
    let statuses: Vec<_> = waiting.into_iter().map(|client| client.join().unwrap()).collect();
    assert_eq!(statuses, [404; 100]);
    entry.stop();
    owner.stop();
}

/// The owner got a request and does not answer, and another node takes the partition. The entry
/// does not wait until the deadline of the request. With a key the request is sent to the new
/// owner. Without one its outcome is unknown.
#[test]
fn a_request_at_a_former_owner_is_given_up_when_a_new_owner_is_seen() {
    let nodes = Nodes::with(|settings| settings.command_time = Duration::from_secs(60));
    let entry = nodes.entry.api;
    nodes.proxy.hold(true);
    let send = |id: &'static str, has_key: bool| {
        thread::spawn(move || {
            let headers = [("x-request-id", id), ("idempotency-key", id)];
            let headers = &headers[..if has_key { 2 } else { 1 }];
            let answer = request(entry, "POST", &command_path(1, "sys.CUD"), headers, ROW);
            (answer, Instant::now())
        })
    };
    let (plain, keyed) = (send("plain", false), send("keyed", true));
    // Both are on their way to the owner.
    thread::sleep(Duration::from_millis(300));
    assert!(!plain.is_finished() && !keyed.is_finished());
    nodes.other.take(1);
    let moved = Instant::now();
    for (sent, expected) in [(plain, 504), (keyed, 200)] {
        let ((status, answer), at) = sent.join().unwrap();
        assert_eq!(status, expected, "{answer}");
        // A read of the owners, two checks of the owner, and the command itself.
        let took = at.saturating_duration_since(moved);
        assert!(took < Duration::from_secs(5), "{status} after {took:?}");
    }
    assert_eq!(nodes.entry.metric("httpapi_forwarded_total{outcome=\"abandoned\"}"), 2.0);
    nodes.proxy.hold(false);
    // The former owner gets both requests now, and refuses them.
    thread::sleep(Duration::from_millis(300));
    let log = logged(nodes.other.api, 1);
    let count = |id: &str| log.iter().filter(|logged| *logged == id).count();
    assert_eq!((count("plain"), count("keyed")), (0, 1), "{log:?}");
    nodes.stop();
}

/// Clients that take eight logs of workspace 1 slowly, so that all places of the owner are taken;
/// and the path of such a log.
fn slow_logs(nodes: &Nodes) -> (Vec<TcpStream>, String) {
    const LOGS: usize = 8;
    let text = "x".repeat(100 << 10);
    let body =
        format!(r#"{{"rows":[{{"id":1,"table":"shop.Article","fields":{{"name":"{text}"}}}}]}}"#);
    for _ in 0..100 {
        let path = command_path(1, "sys.CUD");
        assert_eq!(try_request(nodes.behind.api, "POST", &path, &[], &body).unwrap().0, 200);
    }
    let path = format!("{}/wlog?limit=1000", workspace_path(1));
    let begin = |_| {
        let mut client = connect(nodes.entry.api);
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        client.write_all(head.as_bytes()).unwrap();
        client.read_exact(&mut [0; 20]).unwrap();
        client
    };
    ((0..LOGS).map(begin).collect(), path)
}

#[test]
fn slow_logs_are_bounded_and_leave_room_for_commands() {
    let nodes = Nodes::start();
    let (slow, path) = slow_logs(&nodes);
    let refused = nodes.entry.ask("GET", &path, "", "");
    assert_eq!((refused.status, refused.code().as_str()), (503, "too_many_logs"));
    assert_eq!(nodes.entry.command(1, "sys.CUD", ROW).0, 200);
    drop(slow);
    nodes.entry.wait_for(|node| try_request(node.api, "GET", &path, &[], "").unwrap().0 == 200);
    nodes.stop();
}

/// Logs that waited for a place of the owner were counted among the requests that wait for their
/// partition, so its commands were refused.
#[test]
fn logs_that_wait_leave_room_for_commands() {
    let nodes = Nodes::start();
    let (slow, path) = slow_logs(&nodes);
    let api = nodes.entry.api;
    thread::scope(|scope| {
        let ask = |_| scope.spawn(|| try_request(api, "GET", &path, &[], "").unwrap());
        let waiting: Vec<_> = (0..2 * MOST).map(ask).collect();
        thread::sleep(TIME / 3);
        assert!(waiting.iter().all(|log| !log.is_finished()));
        let (status, answer) = nodes.entry.command(1, "sys.CUD", ROW);
        assert_eq!(status, 200, "{answer}");
        for log in waiting {
            let (status, text) = log.join().unwrap();
            assert!(status == 503 && text.contains("too_many_logs"), "{status} {text}");
        }
    });
    drop(slow);
    nodes.stop();
}
