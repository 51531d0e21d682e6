//! Partitions that change their owner while requests wait for them.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use http_api::vvm::ClusterOrder;
use shop::http_client::{command_path, logged, try_request};

use crate::support::{ClusterNode, NodeOptions, Oracle, Proxy, ROW, TestCluster, WS, free_address};

/// Clients that send commands to one node, each with an id of its own.
struct Load {
    stop: Arc<AtomicBool>,
    oracle: Arc<Mutex<Oracle>>,
    clients: Vec<thread::JoinHandle<Duration>>,
}

impl Load {
    fn begin(api: std::net::SocketAddr, clients: usize, has_key: bool) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let oracle = Arc::new(Mutex::new(Oracle::default()));
        let client = |client| {
            let (stop, oracle) = (Arc::clone(&stop), Arc::clone(&oracle));
            thread::spawn(move || {
                let mut slowest = Duration::ZERO;
                for number in 0.. {
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                    let id = format!("{client}-{number}");
                    let key = [("x-request-id", &*id), ("idempotency-key", &*id)];
                    let headers = &key[..if has_key { 2 } else { 1 }];
                    let start = Instant::now();
                    let path = command_path(WS, "sys.CUD");
                    let (status, _) = try_request(api, "POST", &path, headers, ROW).unwrap();
                    slowest = slowest.max(start.elapsed());
                    oracle.lock().unwrap().note(id, status);
                }
                slowest
            })
        };
        let clients = (0..clients).map(client).collect();
        Load { stop, oracle, clients }
    }

    fn done(&self) -> usize {
        self.oracle.lock().unwrap().count(200)
    }

    fn end(self) -> (Oracle, Duration) {
        self.stop.store(true, Ordering::SeqCst);
        let slowest = self.clients.into_iter().map(|client| client.join().unwrap()).max().unwrap();
        (Arc::into_inner(self.oracle).unwrap().into_inner().unwrap(), slowest)
    }
}

/// The owner stops in order, and another node takes its partitions. Clients of a third node notice
/// slow answers at most.
#[test]
fn requests_wait_for_the_next_owner() {
    let cluster = TestCluster::new();
    let owner = cluster.owner(NodeOptions::default());
    let (second, entry) =
        (cluster.entry(NodeOptions::default()), cluster.entry(NodeOptions::default()));
    let load = Load::begin(entry.api, 32, false);
    entry.wait_for(|_| load.done() > 200);
    owner.stop();
    let owns = |node: &ClusterNode| node.owns(WS);
    entry.wait_for(|entry| owns(entry) || owns(&second));
    let before = load.done();
    entry.wait_for(|_| load.done() > before + 200);
    assert!(entry.metric("httpapi_retries_total") > 0.0);
    let (oracle, slowest) = load.end();
    assert_eq!(entry.metric("httpapi_parked_requests"), 0.0);
    oracle.check(&logged(entry.api, WS));
    assert_eq!((oracle.count(503), oracle.count(504)), (0, 0), "slowest answer: {slowest:?}");
    second.stop();
    entry.stop();
}

/// Clients of a third node notice slow answers at most while a partition moves to and fro.
#[test]
fn a_planned_move_costs_no_client_an_error() {
    let options = || NodeOptions { seats: Some(2), ..NodeOptions::default() };
    let cluster = TestCluster::new();
    let first = cluster.owner(options());
    let second = cluster.beside(&first, options());
    let entry = cluster.entry(options());
    let load = Load::begin(entry.api, 16, false);
    for round in 0..8 {
        let before = load.done();
        entry.wait_for(|_| load.done() > before + 50);
        [&second, &first][round % 2].take(WS);
        // The nodes see the new owner before the next order names it.
        thread::sleep(Duration::from_millis(300));
    }
    let (oracle, slowest) = load.end();
    oracle.check(&logged(entry.api, WS));
    assert_eq!((oracle.count(503), oracle.count(504)), (0, 0), "slowest answer: {slowest:?}");
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    eprintln!("the slowest of {} answers took {slowest:?}", oracle.count(200));
    entry.stop();
    second.stop();
    first.stop();
}

/// A load balancer learns that a node drains, and requests that still arrive are answered.
#[test]
fn a_node_that_drains_closes_the_connections_of_its_clients() {
    let options = || NodeOptions { seats: Some(2), ..NodeOptions::default() };
    let cluster = TestCluster::new();
    let first = cluster.owner(options());
    let second = cluster.beside(&first, options());
    let ask = || first.ask("POST", &command_path(WS, "sys.CUD"), "", ROW);
    assert!(!ask().closes());
    first.wait_for(|node| node.launched.node().cluster_status().members.len() == 2);
    first.order(ClusterOrder::Drain(first.member()));
    first.wait_for(|node| node.launched.node().is_draining());
    for _ in 0..20 {
        let answer = ask();
        assert!(answer.status == 200 && answer.closes(), "{answer:?}");
    }
    second.wait_for(|node| node.owns(WS));
    let answer = ask();
    assert_eq!(answer.header("x-vvm-served-by"), Some(&*second.api.to_string()));
    assert!(answer.closes(), "{answer:?}");
    first.stop();
    second.stop();
}

/// The address of a node that is gone belongs to another process now, which refuses the requests
/// for the former owner. Without a new owner, the clients learn that nothing was done.
#[test]
fn an_address_that_another_process_has_answers_nothing() {
    let proxy = Proxy::start();
    let other = TestCluster::new();
    let stranger = other.owner(NodeOptions::default());
    let change = |settings: &mut http_api::HttpApiSettings| {
        settings.command_time = Duration::from_millis(700);
    };
    let cluster = TestCluster::new();
    let owner = cluster.owner(NodeOptions { proxy: Some(proxy.address), ..NodeOptions::default() });
    proxy.leads_to(owner.cluster);
    let entry = cluster.entry(NodeOptions { change: Some(change), ..NodeOptions::default() });
    assert_eq!(entry.command(WS, "sys.CUD", ROW).0, 200);
    proxy.leads_to(stranger.cluster);
    let events = logged(stranger.api, WS).len();
    // The connection to the former process is not used any more.
    thread::sleep(Duration::from_millis(1_100));
    let start = Instant::now();
    let refused = entry.ask("POST", &command_path(WS, "sys.CUD"), "", ROW);
    assert_eq!((refused.status, refused.code().as_str()), (503, "not_owner"), "{refused:?}");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    let waited = start.elapsed();
    assert!(waited >= Duration::from_millis(600) && waited < Duration::from_secs(2), "{waited:?}");
    assert_eq!(logged(stranger.api, WS).len(), events);
    // The refusals cost no connections: all of them arrive on the same one.
    proxy.leads_to(owner.cluster);
    entry.stop();
    owner.stop();
    stranger.stop();
}

/// No process listens at the address of the owner.
#[test]
fn an_owner_that_is_gone_is_unreachable() {
    let change = |settings: &mut http_api::HttpApiSettings| {
        settings.command_time = Duration::from_millis(400);
    };
    let cluster = TestCluster::new();
    let gone = Some(free_address());
    let owner = cluster.owner(NodeOptions { proxy: gone, ..NodeOptions::default() });
    let entry = cluster.entry(NodeOptions { change: Some(change), ..NodeOptions::default() });
    let refused = entry.ask("POST", &command_path(WS, "sys.CUD"), "", ROW);
    assert_eq!((refused.status, refused.code().as_str()), (503, "unreachable"), "{refused:?}");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    assert_eq!(entry.metric("httpapi_forwarded_total{outcome=\"broken\"}"), 0.0);
    entry.stop();
    owner.stop();
}

/// The cluster port of the successor is gone, or nobody answers there, as if the process had just
/// died or stood still. Its lease and its member row still look alive. The owner gave it the
/// partition, which then had no working owner until the lease had expired.
#[test]
fn a_partition_is_not_given_to_a_node_that_does_not_answer() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    for dead in [free_address(), silent.local_addr().unwrap()] {
        let cluster = TestCluster::new();
        let options = |proxy| NodeOptions { seats: Some(2), proxy, ..NodeOptions::default() };
        let owner = cluster.owner(options(None));
        let other = cluster.beside(&owner, options(Some(dead)));
        let (app, partition) = ("demo/shop".to_owned(), u16::try_from(WS).unwrap());
        owner.order(ClusterOrder::Move { app, partition, to: other.member() });
        // A partition that is given away leaves within two seconds after the order.
        thread::sleep(Duration::from_secs(3));
        assert!(owner.owns(WS), "the partition was given to a node that does not answer");
        let (status, answer) = owner.command(WS, "sys.CUD", ROW);
        assert_eq!(status, 200, "{answer}");
        other.stop();
        owner.stop();
    }
}
