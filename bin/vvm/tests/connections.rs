//! Idle connections: thousands to the API, and more than its limit to the admin endpoint.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

#[path = "support/in_memory.rs"]
mod in_memory;
#[path = "support/node.rs"]
mod node;

use std::{
    io::Write,
    net::TcpStream,
    time::{Duration, Instant},
};

use in_memory::{WS, node_with};
use node::PATIENCE;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use shop::http_client::request;

const OPEN: &str = "httpapi_connections{service=\"api\"} ";

#[test]
fn ten_thousand_idle_connections_do_not_slow_down_commands() {
    // If the configuration allows more connections than open files are possible, the number of open
    // files is the limit.
    let (_folder, node) = node_with("connections = 9223372036854775807\n");
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let allowed = maximum.unwrap_or(u64::MAX);
    assert!(
        allowed > 10_200,
        "only {allowed} open files are allowed here: raise that (ulimit -Hn)"
    );
    let idle: Vec<_> = (0..10_000).map(|_| TcpStream::connect(node.api).unwrap()).collect();
    // The kernel accepts connections that the node does not have yet, or has closed.
    let has_all = |metrics: &str| {
        let open = metrics.lines().find_map(|line| line.strip_prefix(OPEN)).unwrap();
        open.parse::<usize>().unwrap() >= idle.len()
    };
    let start = Instant::now();
    while !has_all(request(node.admin, "GET", "/metrics", &[], "").1.as_str().unwrap()) {
        assert!(start.elapsed() < PATIENCE, "the node does not keep the connections");
        std::thread::sleep(Duration::from_millis(20));
    }
    let start = Instant::now();
    let body = r#"{"rows":[{"id":1,"table":"shop.Article"}]}"#;
    assert_eq!(node.command(WS, "sys.CUD", body).0, 200);
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert_eq!(node.logged(WS).len(), 2, "others read, too");
    let start = Instant::now();
    node.stop();
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}

/// The admin endpoint has 100 connections. 100 clients that sent no requests kept the probes
/// waiting for 5 seconds, and a supervisor would have killed the node.
#[test]
fn idle_connections_to_the_admin_endpoint_do_not_block_probes() {
    let (_folder, node) = node_with("");
    let idle: Vec<_> = (0..150)
        .map(|at| {
            let mut stream = TcpStream::connect(node.admin).unwrap();
            // Every second client has sent the start of a request.
            stream.write_all(if at % 2 == 0 { b"" } else { b"GET /livez HT" }).unwrap();
            stream
        })
        .collect();
    for path in ["/livez", "/readyz", "/status", "/metrics"] {
        let start = Instant::now();
        assert_eq!(request(node.admin, "GET", path, &[], "").0, 200);
        assert!(start.elapsed() < Duration::from_secs(1), "{path}: {:?}", start.elapsed());
    }
    drop(idle);
    node.stop();
}
