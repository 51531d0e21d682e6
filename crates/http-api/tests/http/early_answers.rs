//! Answers that do not need the body of their request.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use shop::http_client::workspace_path;

use crate::support::{Answer, TestNode, WS, answer_to, connect};

/// A client that keeps its connection until an answer announces the end of the connection.
struct KeepAlive {
    address: SocketAddr,
    stream: Option<TcpStream>,
    connections: u32,
}

impl KeepAlive {
    fn new(address: SocketAddr) -> KeepAlive {
        KeepAlive { address, stream: None, connections: 0 }
    }

    /// Sends the head, then the body, as most clients do.
    fn send(&mut self, head: &str, body: &[u8]) -> io::Result<Answer> {
        if self.stream.is_none() {
            self.connections += 1;
        }
        let stream = self.stream.get_or_insert_with(|| connect(self.address));
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        let answer = Answer::read(stream)?;
        if answer.closes() {
            self.stream = None;
        }
        Ok(answer)
    }
}

/// A request with an answer that does not need the body: method, rest of the path, header, size of
/// the body.
type EarlyAnswer = (&'static str, &'static str, &'static str, usize);

/// After an early answer hyper closed the connection, but the answer did not say so. Then 4 to 5 of
/// 100 next requests failed with EPIPE.
#[test]
fn the_next_request_of_a_client_succeeds_after_an_early_answer() {
    const SAMPLE: u32 = 200;
    const LONG: u32 = 5_000;
    let rounds = if tck::trial::is_long() { LONG } else { SAMPLE };
    let node = TestNode::with(|settings| settings.limits.body_bytes = 10_000);
    let early: [(u16, EarlyAnswer); 8] = [
        (403, ("POST", "/docs/shop.Article", "Origin: https://evil.example\r\n", 2)),
        (404, ("POST", "/none", "", 5_000)),
        (405, ("PUT", "/docs/shop.Article", "", 100)),
        (413, ("POST", "/docs/shop.Article", "", 20_000)),
        (413, ("POST", "/docs/shop.Article", "", 2_000_000)),
        (417, ("POST", "/docs/shop.Article", "Expect: 999\r\n", 5_000)),
        (200, ("GET", "/cdocs/shop.Article", "", 10)),
        (200, ("GET", "/cdocs/shop.Article", "", 1_000_000)),
    ];
    for (status, (method, rest, header, bytes)) in early {
        // Large bodies take time, and behave like the others.
        let rounds = if bytes >= 1_000_000 { rounds / 10 } else { rounds };
        let path = workspace_path(WS);
        let head = format!(
            "{method} {path}{rest} HTTP/1.1\r\nHost: localhost\r\n{header}Content-Length: {bytes}\r\n\r\n"
        );
        let body = vec![b' '; bytes];
        let (mut client, mut failed) = (KeepAlive::new(node.api), Vec::new());
        for _ in 0..rounds {
            match client.send(&head, &body) {
                Ok(answer) if answer.status == status => {}
                Ok(answer) => panic!("{head}: {answer:?}"),
                Err(error) => {
                    failed.push(error.to_string());
                    client.stream = None;
                }
            }
        }
        println!(
            "{status} {method} with {bytes} bytes: {} of {rounds} failed, {} connections",
            failed.len(),
            client.connections
        );
        assert!(
            failed.is_empty(),
            "{status} {method} with {bytes} bytes: {} of {rounds}: {failed:?}",
            failed.len()
        );
        if bytes < 200_000 {
            assert_eq!(
                client.connections, 1,
                "{status} {method}: little is drained, and the connection stays"
            );
        }
    }
    node.stop();
}

/// A chunked body announces no length, so the node cannot know whether draining the body is worth
/// the time. A body that never arrives must not delay the answer.
#[test]
fn an_early_answer_waits_only_a_moment_for_a_body() {
    let node = TestNode::with(|settings| settings.limits.body_bytes = 10_000);
    let path = format!("{}/docs/shop.Article", workspace_path(WS));
    let put = |header: &str| format!("PUT {path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n\r\n");
    let mut chunked = KeepAlive::new(node.api);
    for _ in 0..20 {
        let answer = chunked.send(&put("Transfer-Encoding: chunked"), b"3\r\nabc\r\n0\r\n\r\n");
        assert_eq!(answer.unwrap().status, 405);
    }
    assert_eq!(chunked.connections, 1);
    let start = Instant::now();
    let silent = answer_to(node.api, &put("Content-Length: 5"));
    assert!(silent.status == 405 && silent.closes(), "{silent:?}");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    // A client that waits for `100 Continue` gets the answer at once, and need not send its body.
    let mut waits = connect(node.api);
    let head = put("Content-Length: 5\r\nExpect: 100-continue");
    waits.write_all(head.as_bytes()).unwrap();
    let mut all = String::new();
    waits.read_to_string(&mut all).unwrap();
    assert!(all.starts_with("HTTP/1.1 405 "), "{all}");
    assert!(all.to_ascii_lowercase().contains("\r\nconnection: close\r\n"), "{all}");
    node.stop();
}
