//! Clients that read `/metrics` without a pause. The lease is renewed, and probes are answered.

use std::{
    net::SocketAddr,
    thread::sleep,
    time::{Duration, Instant},
};

use shop::http_client::try_request;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    runtime::Runtime,
};

use crate::node::NodeProcess;

/// The length of the lease, in seconds. The leader renews it each second.
const LEASE: u64 = 4;

/// The number of clients. The admin endpoint takes 100 connections, and probes need some of them.
const CLIENTS: usize = 90;

const SPAN: Duration = Duration::from_secs(4);

/// The bound of a probe. The slowest one took 33 ms in a debug build on two busy cores.
const PROBE: Duration = Duration::from_secs(1);

/// The threads that renew the lease and answer probes also rendered the metrics. With 90 clients
/// that repeated `GET /metrics`, a probe took 9.5 s, and the node lost its lease.
#[test]
fn clients_that_read_metrics_without_a_pause_take_neither_the_lease_nor_the_probes() {
    let folder = tempfile::tempdir().unwrap();
    let config = format!("[storage]\ndriver = \"mem\"\n[node]\nlease_seconds = {LEASE}\n");
    let node = NodeProcess::start(folder.path(), &config).ready();
    let clients = Runtime::new().unwrap();
    let until = Instant::now() + SPAN;
    let readers: Vec<_> =
        (0..CLIENTS).map(|_| clients.spawn(read_metrics(node.admin, until))).collect();
    let mut slowest = Duration::ZERO;
    while Instant::now() < until {
        let start = Instant::now();
        let answer = try_request(node.admin, "GET", "/livez", &[], "");
        assert_eq!(answer.unwrap().0, 200);
        slowest = slowest.max(start.elapsed());
        sleep(Duration::from_millis(50));
    }
    let mut answers = 0;
    clients.block_on(async {
        for reader in readers {
            answers += reader.await.unwrap();
        }
    });
    let near_the_end = node.renewals_near_the_end(LEASE);
    println!("{answers} answers; slowest probe {slowest:?}; {near_the_end} renewals near the end");
    assert!(answers >= CLIENTS, "{answers} answers");
    assert!(slowest < PROBE, "{slowest:?}");
    assert_eq!(near_the_end, 0, "{}", node.log_text());
    node.stop();
}

/// Reads the metrics again and again on one connection. Returns the number of complete answers.
async fn read_metrics(admin: SocketAddr, until: Instant) -> usize {
    let mut stream = TcpStream::connect(admin).await.unwrap();
    let (mut bytes, mut answers) = (Vec::new(), 0);
    while Instant::now() < until {
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        bytes.clear();
        let head = loop {
            assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0, "the connection ended");
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break bytes.drain(..end + 4).collect::<Vec<u8>>();
            }
        };
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.unwrap_or_else(|| panic!("{head}")).parse().unwrap();
        while bytes.len() < length {
            assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0, "the answer was cut");
        }
        assert!(head.starts_with("http/1.1 200 "), "{head}");
        answers += 1;
    }
    answers
}
