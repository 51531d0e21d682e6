//! Requests that hyper cannot read.

use std::{
    io::{Read, Write},
    thread::sleep,
    time::{Duration, Instant},
};

use crate::support::{Answer, PATIENCE, TestNode, answer_to, connect, get};

#[test]
fn a_request_that_cannot_be_read_gets_a_status_and_a_line_in_the_log() {
    let node = TestNode::with(|settings| settings.limits.body_bytes = 10_000);
    let line = |header: &str| get(&format!("Host: localhost\r\n{header}\r\n"));
    let many: String = (0..101).map(|n| format!("x-{n}: 1\r\n")).collect();
    for (request, status, text) in [
        (line(&format!("x: {}", "x".repeat(20_000))), 431, "too large"),
        (get(&many), 431, "too large"),
        (format!("GET /{}", "x".repeat(20_000)), 431, "too large"),
        // A header line that goes on in the next line.
        (line("a: b\r\n c"), 400, "HTTP header"),
        (line("a : b"), 400, "HTTP header"),
        (line("a"), 400, "HTTP header"),
        (line("a: \0"), 400, "HTTP header"),
        ("GET / HTTP/3.0\r\n\r\n".to_owned(), 400, "HTTP version"),
        ("GET /\r\n\r\n".to_owned(), 400, "URI"),
        ("G@T / HTTP/1.1\r\n\r\n".to_owned(), 400, "HTTP method"),
        ("\0\u{1}\u{2}".to_owned(), 400, "HTTP method"),
        ("\u{16}\u{3}\u{1}\u{2}\0\u{1}\0".to_owned(), 400, "HTTP method"),
    ] {
        let lines_in = |log: &str| {
            let lines = log.lines().filter(|line| line.contains("malformed request refused"));
            lines.filter(|line| line.contains(text)).map(str::to_owned).collect::<Vec<_>>()
        };
        let before = lines_in(&node.log_text()).len();
        for address in [node.api, node.admin] {
            let answer = answer_to(address, &request);
            assert_eq!(answer.status, status, "{request:?}: {answer:?}");
            assert!(answer.body.is_empty() && answer.closes(), "{request:?}: {answer:?}");
        }
        // hyper answers before the node writes the line.
        let start = Instant::now();
        let lines = loop {
            let lines = lines_in(&node.log_text());
            if lines.len() >= before + 2 {
                break lines;
            }
            assert!(start.elapsed() < PATIENCE, "{request:?}: {}", node.log_text());
            sleep(Duration::from_millis(5));
        };
        assert!(lines.iter().all(|line| line.contains("127.0.0.1:")), "{lines:?}");
    }
    node.stop();
}

/// A request before the malformed one on the same connection gets its usual answer.
#[test]
fn a_malformed_request_does_not_harm_the_answer_before_it() {
    let node = TestNode::with(|settings| settings.limits.body_bytes = 10_000);
    let mut stream = connect(node.api);
    let both = format!("{}G@T / HTTP/1.1\r\n\r\n", get("Host: localhost\r\n"));
    stream.write_all(both.as_bytes()).unwrap();
    assert_eq!(Answer::read(&mut stream).unwrap().status, 200);
    let malformed = Answer::read(&mut stream).unwrap();
    assert_eq!(malformed.status, 400);
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the connection ends");
    node.stop();
}
