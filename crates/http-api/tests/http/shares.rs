//! The share of one principal in the limits of a node. Each principal leaves half of everything to
//! the others.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    thread::sleep,
    time::{Duration, Instant},
};

use http_api::HttpApiSettings;
use shop::{
    Follower,
    http_client::{command_path, workspace_path},
};

use crate::{
    access::{ALL, Issuer, ask},
    support::{PATIENCE, TestNode, WS},
};

/// A node, and the tokens of two principals.
struct SharedNode {
    node: TestNode,
    slow: String,
    other: String,
    /// The node reads the file of the issuer.
    _issuer: Issuer,
}

impl SharedNode {
    /// Starts a node with a workspace that has a document of 900 KB, written this many times.
    fn new(writes: usize, change: impl FnOnce(&mut HttpApiSettings)) -> SharedNode {
        let issuer = Issuer::new();
        let authenticator = issuer.authenticator();
        let node = TestNode::with_admin(|api, _| {
            api.authenticator = Some(authenticator);
            change(api);
        });
        let (slow, other) = (issuer.token("slow", ALL), issuer.token("other", ALL));
        let create = command_path(WS, "sys.CreateWorkspace");
        let kind = r#"{"args":{"kind":"Shop"}}"#;
        assert_eq!(ask(&node, "POST", &create, Some(&slow), kind).0, 200);
        let text = "x".repeat(900_000);
        let body = format!(
            r#"{{"rows":[{{"id":1,"table":"shop.Article","fields":{{"name":"{text}"}}}}]}}"#
        );
        for _ in 0..writes {
            assert_eq!(ask(&node, "POST", &command_path(WS, "sys.CUD"), Some(&slow), &body).0, 200);
        }
        SharedNode { node, slow, other, _issuer: issuer }
    }

    fn read(&self, path: &str, token: &str) -> (u16, String) {
        let path = workspace_path(WS) + path;
        let (status, code, _) = ask(&self.node, "GET", &path, Some(token), "");
        (status, code)
    }

    /// Sends a request of the slow principal this many times, and receives nothing.
    fn send(&self, path: &str, times: usize) -> TcpStream {
        let mut client = TcpStream::connect(self.node.api).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let path = workspace_path(WS) + path;
        let headers = format!("host: localhost\r\nauthorization: Bearer {}", self.slow);
        let request = format!("GET {path} HTTP/1.1\r\n{headers}\r\n\r\n");
        client.write_all(request.repeat(times).as_bytes()).unwrap();
        client
    }
}

fn limited() -> (u16, String) {
    (429, "rate_limited".to_owned())
}

/// A principal that received its logs slowly held all places for logs. All other principals got no
/// log until the node cut the connections.
#[test]
fn a_principal_leaves_places_for_the_logs_of_others() {
    let shared = SharedNode::new(20, |api| {
        api.logs = 4;
        api.command_time = Duration::from_millis(1_500);
    });
    let mut readers: Vec<_> = (0..4).map(|_| shared.send("/wlog", 1)).collect();
    // Half of them wait for a place until their time is over.
    let has_log = |client: &mut TcpStream| {
        let mut head = [0; 12];
        client.read_exact(&mut head).unwrap();
        head == *b"HTTP/1.1 200"
    };
    assert_eq!(readers.iter_mut().map(has_log).filter(|has_log| *has_log).count(), 2);
    assert_eq!(shared.read("/wlog?limit=1", &shared.other).0, 200);
    let refused = || shared.node.metric("httpapi_shares_refused_total{limit=\"too_many_logs\"}");
    let before = refused();
    assert_eq!(shared.read("/wlog?limit=1", &shared.slow), limited());
    assert_eq!(refused(), before + 1.0);
    drop(readers);
    shared.node.stop();
}

/// There was no limit for logs that waited for the share of their principal, and each held a
/// connection. So the requests of all others waited for connections.
#[test]
fn the_waiting_logs_of_a_principal_leave_connections_to_others() {
    const CONNECTIONS: usize = 12;
    let shared = SharedNode::new(20, |api| {
        api.logs = 2;
        api.limits.connections = CONNECTIONS;
        api.command_time = PATIENCE;
    });
    let begun = Instant::now();
    let slow: Vec<_> = (0..CONNECTIONS).map(|_| shared.send("/wlog", 6)).collect();
    let create = command_path(2, "sys.CreateWorkspace");
    let kind = r#"{"args":{"kind":"Shop"}}"#;
    assert_eq!(ask(&shared.node, "POST", &create, Some(&shared.other), kind).0, 200);
    assert!(begun.elapsed() < PATIENCE / 2, "the request waited {:?}", begun.elapsed());
    drop(slow);
    shared.node.stop();
}

/// One principal held all places of followers until its token ended.
#[test]
fn a_principal_leaves_places_for_the_followers_of_others() {
    let shared = SharedNode::new(0, |api| api.followers = 4);
    let path = workspace_path(WS) + "/wlog?follow=true";
    let follow = |token: &str| {
        let bearer = format!("Bearer {token}");
        Follower::open(shared.node.api, &path, &[("authorization", &bearer)]).unwrap()
    };
    let slow = [(); 3].map(|()| follow(&shared.slow));
    assert_eq!(slow.each_ref().map(|follower| follower.status), [200, 200, 429]);
    assert_eq!(shared.read("/wlog?follow=true", &shared.slow), limited());
    let others = [(); 3].map(|()| follow(&shared.other));
    assert_eq!(others.each_ref().map(|follower| follower.status), [200, 200, 429]);
    drop((slow, others));
    shared.node.stop();
}

/// Waits until clients hold the memory for answers, and no answer is read.
fn until_memory_rests(node: &TestNode) {
    let taken = || node.metric("httpapi_memory_reserved_bytes{of=\"answers\"}");
    let begun = Instant::now();
    let (mut last, mut since) = (0.0, Instant::now());
    while last < f64::from(3 << 20) || since.elapsed() < Duration::from_secs(1) {
        assert!(begun.elapsed() < PATIENCE, "the memory is never used up: {last}");
        let now = taken();
        if now != last {
            (last, since) = (now, Instant::now());
        }
        sleep(Duration::from_millis(10));
    }
}

/// A principal that received its documents slowly held all memory for answers. All others got
/// neither documents nor logs.
///
/// The slow clients compute while the kernel takes their first answers. A request at that time may
/// get 503 `timed_out`, and the test took this for memory that is used up. So the test waits until
/// the memory in use rests.
#[test]
fn a_principal_leaves_memory_for_the_answers_of_others() {
    const DOC: &str = "/cdocs/shop.Article?limit=1";
    let shared = SharedNode::new(1, |api| {
        api.answers_bytes = 16 << 20;
        api.logs = 1;
        api.command_time = Duration::from_secs(8);
    });
    // The kernel takes some answers of each client, and the node holds the next one.
    let slow: Vec<_> = (0..24).map(|_| shared.send(DOC, 40)).collect();
    until_memory_rests(&shared.node);
    let done = (200, String::new());
    let (begun, mut refused) = (Instant::now(), 0);
    while refused < 2 {
        assert!(begun.elapsed() < PATIENCE, "the principal has no limit");
        assert_eq!(shared.read(DOC, &shared.other), done);
        assert_eq!(shared.read("/wlog?limit=1", &shared.other), done);
        // From time to time the kernel takes another answer, and the slow principal gets its place.
        let read = shared.read(DOC, &shared.slow);
        assert!(read == limited() || read == done, "{read:?}");
        refused += usize::from(read == limited());
    }
    drop(slow);
    shared.node.stop();
}

/// A principal that receives a log slowly still reads its documents, even with little memory.
#[test]
fn a_single_principal_reads_documents_beside_its_log() {
    let shared = SharedNode::new(20, |api| {
        api.answers_bytes = 8 << 20;
        api.logs = 1;
        api.command_time = Duration::from_secs(2);
    });
    let log = shared.send("/wlog", 1);
    let mut log = BufReader::new(log);
    let mut head = String::new();
    log.read_line(&mut head).unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    for _ in 0..3 {
        assert_eq!(shared.read("/cdocs/shop.Article?limit=1", &shared.slow).0, 200);
    }
    drop(log);
    shared.node.stop();
}
