//! The share of one principal in the connections between two nodes, and in the memory of both.
//! Each principal leaves half of them to the others.

use std::{
    io::Write as _,
    net::{SocketAddr, TcpStream},
    thread::{self, sleep},
    time::{Duration, Instant},
};

use http_api::HttpApiSettings;
use serde_json::json;
use shop::http_client::{command_path, request, try_request, workspace_path};
use vvm::Stage;

use crate::{
    access::asks,
    support::{ClusterNode, NodeOptions, Proxy, TestCluster, WS, connect},
};

const PATIENCE: Duration = Duration::from_secs(30);

/// The time of a read. It waits for memory for half of it.
const TIME: Duration = Duration::from_secs(20);

/// A read whose answer has 900 KB.
const READ: &str = "/cdocs/shop.Article?limit=1";

fn shared(settings: &mut HttpApiSettings) {
    asks(settings);
    settings.answers_bytes = 16 << 20;
    settings.command_time = TIME;
}

/// The owner of a workspace with a large document, and another node. Both require tokens.
fn owner_and_entry(change: fn(&mut HttpApiSettings)) -> (ClusterNode, ClusterNode) {
    let cluster = TestCluster::new();
    let open = cluster.owner(NodeOptions::default());
    let text = "x".repeat(900_000);
    let body =
        format!(r#"{{"rows":[{{"id":1,"table":"shop.Article","fields":{{"name":"{text}"}}}}]}}"#);
    assert_eq!(open.command(WS, "sys.CUD", &body).0, 200);
    open.stop();
    let options = || NodeOptions { change: Some(change), ..NodeOptions::default() };
    let owner = cluster.launch(options());
    owner.wait_for(|node| node.launched.node().stage() == Stage::Leading);
    (owner, cluster.entry(options()))
}

fn read(api: SocketAddr, name: &str) -> (u16, Duration) {
    let (start, bearer) = (Instant::now(), format!("Bearer {name}"));
    let path = workspace_path(WS) + READ;
    let (status, _) = try_request(api, "GET", &path, &[("authorization", &bearer)], "").unwrap();
    (status, start.elapsed())
}

/// Sends a request of the slow principal this many times, and receives nothing.
fn send(api: SocketAddr, method: &str, path: &str, body: &str, times: usize) -> TcpStream {
    let mut client = connect(api);
    let length = body.len();
    let headers = format!("authorization: Bearer slow\r\ncontent-length: {length}");
    let request = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n\r\n{body}");
    client.write_all(request.repeat(times).as_bytes()).unwrap();
    client
}

/// Lets the slow principal use up its share of the memory for answers of a node.
fn use_up_share(node: &ClusterNode) -> Vec<TcpStream> {
    // The kernel takes some answers of each client, and the node holds the next one.
    let path = workspace_path(WS) + READ;
    let clients = (0..12).map(|_| send(node.api, "GET", &path, "", 100)).collect();
    until_memory_rests(node, "answers", 4 << 20);
    clients
}

/// Waits until clients hold at least this much memory, and no answer is made.
fn until_memory_rests(node: &ClusterNode, of: &str, least: u32) {
    let (begun, mut last, mut since) = (Instant::now(), 0.0, Instant::now());
    while last < f64::from(least) || since.elapsed() < Duration::from_secs(1) {
        assert!(begun.elapsed() < PATIENCE, "the memory is never used up: {last}");
        let now = node.metric(&format!("httpapi_memory_reserved_bytes{{of=\"{of}\"}}"));
        if now != last {
            (last, since) = (now, Instant::now());
        }
        sleep(Duration::from_millis(10));
    }
}

/// A principal has used up its share of the memory of one node. Its reads that another node
/// forwarded waited for this share until half of their time was over. They held all connections to
/// the owner meanwhile, and the reads of all others had to wait.
#[test]
fn a_principal_leaves_connections_between_nodes_to_others() {
    for is_share_of_entry in [true, false] {
        let (owner, entry) = owner_and_entry(shared);
        assert_eq!(read(entry.api, "other").0, 200);
        let held = use_up_share(if is_share_of_entry { &entry } else { &owner });
        let api = entry.api;
        let slow: Vec<_> = (0..60).map(|_| thread::spawn(move || read(api, "slow"))).collect();
        sleep(Duration::from_millis(100));
        for _ in 0..5 {
            let (status, time) = read(entry.api, "other");
            assert!(status == 200 && time < TIME / 8, "{is_share_of_entry}: {status} in {time:?}");
        }
        // From time to time the kernel takes another answer, and the slow principal gets its place.
        let slow: Vec<_> = slow.into_iter().map(|client| client.join().unwrap()).collect();
        assert!(slow.iter().all(|(status, _)| [200, 429].contains(status)), "{slow:?}");
        assert!(slow.iter().any(|(status, _)| *status == 429), "{slow:?}");
        assert!(slow.iter().all(|(_, time)| *time < TIME / 2), "{slow:?}");
        drop(held);
        entry.stop();
        owner.stop();
    }
}

/// A read gave its place back when it was tried again. Then other reads of its principal took the
/// share, and the read got a 429 after a moment.
#[test]
fn a_read_that_is_tried_again_does_not_lose_its_share() {
    const RECOVERING: &str = "HTTP/1.1 503 Service Unavailable\r\nx-vvm-problem: recovering\r\n\
                              content-length: 0\r\n\r\n";
    // They have the share in the partition, or the share at the owner.
    for others in [vec![WS; 16], [vec![2; 16], vec![3; 15]].concat()] {
        let (proxy, cluster) = (Proxy::start(), TestCluster::new());
        let owner =
            cluster.owner(NodeOptions { proxy: Some(proxy.address), ..NodeOptions::default() });
        proxy.leads_to(owner.cluster);
        let entry = cluster.entry(NodeOptions { change: Some(asks), ..NodeOptions::default() });
        let api = entry.api;
        let begin = |ws| {
            thread::spawn(move || {
                let path = workspace_path(ws) + "/docs/shop.Article/70000";
                let headers = [("authorization", "Bearer busy")];
                try_request(api, "GET", &path, &headers, "").unwrap()
            })
        };
        proxy.answers(Some(RECOVERING));
        let first = begin(WS);
        // From now on a quarter of a second passes between two tries.
        entry.wait_for(|entry| entry.metric("httpapi_retries_total") >= 8.0);
        sleep(Duration::from_millis(20));
        proxy.hold(true);
        let others: Vec<_> = others.into_iter().map(begin).collect();
        sleep(Duration::from_secs(1));
        proxy.answers(None);
        proxy.hold(false);
        let (status, text) = first.join().unwrap();
        assert_eq!(status, 404, "{text}");
        assert!(others.into_iter().all(|other| other.join().unwrap().0 == 404));
        entry.stop();
        owner.stop();
    }
}

/// A principal sent small commands with large results, and received nothing. Its answers held all
/// memory for bodies, and nobody else could write through this node.
#[test]
fn a_principal_that_receives_results_slowly_leaves_memory_for_the_bodies_of_others() {
    fn small_bodies(settings: &mut HttpApiSettings) {
        shared(settings);
        settings.limits.body_bytes = 2 << 20;
        settings.limits.body_time = Duration::from_secs(3);
        settings.bodies_bytes = 16 << 20;
    }
    let path = command_path(WS, "shop.Result");
    // Four of these answers fill the share of a principal, to the last byte: the last one takes
    // what is left.
    let large = format!(r#"{{"args":{}}}"#, 2 << 20);
    let small = r#"{"args":2}"#;
    for is_forwarded in [false, true] {
        let (owner, entry) = owner_and_entry(small_bodies);
        let node = if is_forwarded { &entry } else { &owner };
        let write = |name: &str| {
            let bearer = format!("Bearer {name}");
            let headers = [("authorization", bearer.as_str())];
            request(node.api, "POST", &path, &headers, small)
        };
        assert_eq!(write("other").0, 200);
        // The kernel takes some answers of each client, and the node holds the next one.
        let slow: Vec<_> = (0..8).map(|_| send(node.api, "POST", &path, &large, 10)).collect();
        until_memory_rests(node, "bodies", 7 << 20);
        for _ in 0..3 {
            let (status, answer) = write("other");
            assert_eq!(status, 200, "{is_forwarded}: {answer}");
        }
        // From time to time the kernel takes another answer.
        let begun = Instant::now();
        loop {
            let (status, answer) = write("slow");
            if (status, &answer["code"]) == (429, &json!("rate_limited")) {
                break;
            }
            assert!(status == 200 && begun.elapsed() < PATIENCE, "{status} {answer}");
        }
        drop(slow);
        entry.stop();
        owner.stop();
    }
}

/// The numbers of a draw through another node had memory only at the owner. The other node received
/// them without a share of its own, whatever their principal held there.
#[test]
fn a_draw_counts_at_both_nodes_before_a_number_is_drawn() {
    let (owner, entry) = owner_and_entry(|settings| {
        shared(settings);
        // A draw waits for memory for half of this time, which must be enough on a busy machine.
        settings.command_time = Duration::from_secs(12);
    });
    let path = workspace_path(WS) + "/numbers/order/next";
    let draw = |name: &str, body: &str| {
        let bearer = format!("Bearer {name}");
        request(entry.api, "POST", &path, &[("authorization", &bearer)], body)
    };
    let block = r#"{"count":2000}"#;
    assert_eq!(draw("other", block).1["counters"][0], 0);
    let held = use_up_share(&entry);
    // The share has no room for as many numbers.
    let mut drawn = 2_000;
    let begun = Instant::now();
    // From time to time the kernel takes another answer, and the slow principal gets its place.
    loop {
        let (status, answer) = draw("slow", block);
        if status == 429 {
            break;
        }
        assert_eq!((status, &answer["counters"][0]), (200, &json!(drawn)), "{answer}");
        assert!(begun.elapsed() < PATIENCE, "the draws take no memory of the entry");
        drawn += 2_000;
    }
    assert_eq!(draw("other", "").1["counters"][0], drawn, "a refused draw drew numbers");
    // A draw that waits for memory keeps its body, so the body is small.
    let large = format!(r#"{{"count":2000{}}}"#, " ".repeat(1_024));
    let (status, answer) = draw("other", &large);
    assert_eq!((status, &answer["code"]), (413, &json!("body_too_large")), "{answer}");
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let begun = Instant::now();
            // At the owner the reads that were cut may keep their share for longer than the moment
            // that a request between two nodes waits. Then the client may send again.
            loop {
                let (status, answer) = draw("slow", block);
                if status != 429 || begun.elapsed() > PATIENCE {
                    return (status, answer);
                }
            }
        });
        sleep(Duration::from_millis(500));
        assert!(!waits.is_finished(), "the draw did not wait for its share");
        drop(held);
        let (status, answer) = waits.join().unwrap();
        assert_eq!((status, &answer["counters"][1_999]), (200, &json!(drawn + 2_000)), "{answer}");
    });
    entry.stop();
    owner.stop();
}
