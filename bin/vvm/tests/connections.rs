//! Connections: the limit of their number, and the choice of the one that gives way to a new one.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

#[path = "support/in_memory.rs"]
mod in_memory;
#[path = "support/node.rs"]
mod node;

use std::{
    io::{Read, Write},
    net::TcpStream,
    thread::sleep,
    time::{Duration, Instant},
};

use in_memory::{WS, node_with};
use node::{command_path, request, try_request, workspace_path};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

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
    assert_eq!(idle.len(), 10_000);
    let start = Instant::now();
    let body = r#"{"rows":[{"id":1,"table":"shop.Article"}]}"#;
    assert_eq!(node.command(WS, "sys.CUD", body).0, 200);
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert_eq!(node.logged(WS).len(), 2, "others read, too");
    let start = Instant::now();
    node.stop();
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}

/// At the limit each new connection waited until another one ended: clients that sent no requests
/// kept out all others.
///
/// A later version asked an idle connection to give way to the waiting one, but a busy one ended
/// first. The node kept the demand, and closed the next connection that became idle, although there
/// was room.
#[test]
fn above_the_limit_an_idle_connection_gives_way_and_a_busy_one_does_not() {
    let (_folder, node) = node_with("connections = 2\n");
    let path = command_path(WS, "sys.CUD");
    let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n");
    let mut busy = [(); 2].map(|()| TcpStream::connect(node.api).unwrap());
    busy.iter_mut().for_each(|stream| stream.write_all(head.as_bytes()).unwrap());
    sleep(Duration::from_millis(100));
    let api = node.api;
    let path = format!("{}/wlog?limit=1", workspace_path(WS));
    let asked = path.clone();
    let ask = move || try_request(api, "GET", &asked, &[], "").unwrap().0;
    let waits = std::thread::spawn(ask.clone());
    sleep(Duration::from_millis(200));
    assert!(!waits.is_finished(), "a third connection was served beside two that are busy");
    drop(busy);
    assert_eq!(waits.join().unwrap(), 200);

    // A connection is idle from its last answer on. So these two become idle one after the other.
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let mut idle = [(); 2].map(|()| {
        let mut stream = TcpStream::connect(node.api).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        assert_ne!(stream.read(&mut [0; 4_096]).unwrap(), 0);
        sleep(Duration::from_millis(100));
        stream
    });
    // The waiting connection got the place of a busy one, so no idle connection has to give way.
    for stream in &mut idle {
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert!(stream.read(&mut [0]).is_err(), "an idle connection was closed without need");
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    }
    let start = Instant::now();
    assert_eq!(ask(), 200);
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    // The connection that was idle longest gave way.
    assert_eq!(idle[0].read(&mut [0]).unwrap_or_default(), 0);
    idle[1].set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(idle[1].read(&mut [0]).is_err(), "the second gave way, too");
    node.stop();
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
