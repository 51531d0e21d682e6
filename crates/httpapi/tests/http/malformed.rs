//! Requests that hyper cannot read.

use std::io::{Read, Write};

use crate::support::{Answer, TestNode, answer_to, connect, get};

/// A request that hyper could not read got only a status, and the log had no line for the request.
#[test]
fn a_request_that_cannot_be_read_gets_a_problem_and_a_line_in_the_log() {
    let node = TestNode::with(|settings| settings.limits.body_bytes = 10_000);
    let line = |header: &str| get(&format!("Host: localhost\r\n{header}\r\n"));
    let many: String = (0..101).map(|n| format!("x-{n}: 1\r\n")).collect();
    let bad = (400, "bad_request");
    for (request, expected, text) in [
        (line(&format!("x: {}", "x".repeat(20_000))), (431, "head_too_large"), "16384 bytes"),
        (get(&many), (431, "head_too_large"), "100 headers"),
        (format!("GET /{}", "x".repeat(20_000)), (414, "uri_too_long"), "request line"),
        // A header line that goes on in the next line.
        (line("a: b\r\n c"), bad, "HTTP header"),
        (line("a : b"), bad, "HTTP header"),
        (line("a"), bad, "HTTP header"),
        (line("a: \0"), bad, "HTTP header"),
        ("GET / HTTP/3.0\r\n\r\n".to_owned(), bad, "HTTP version"),
        ("GET /\r\n\r\n".to_owned(), bad, "URI"),
        ("G@T / HTTP/1.1\r\n\r\n".to_owned(), bad, "HTTP method"),
        ("\0\u{1}\u{2}".to_owned(), bad, "HTTP method"),
        ("\u{16}\u{3}\u{1}\u{2}\0\u{1}\0".to_owned(), bad, "TLS"),
    ] {
        for address in [node.api, node.admin] {
            let answer = answer_to(address, &request);
            assert_eq!((answer.status, &*answer.code()), expected, "{request:?}: {answer:?}");
            assert!(answer.body.contains(text) && answer.closes(), "{request:?}: {answer:?}");
            assert!(answer.head.contains("\r\ndate: "), "{answer:?}");
            assert_eq!(answer.header("cache-control"), Some("no-store"), "{answer:?}");
            // The description of the API promises the id.
            let id = answer.json()["requestId"].clone();
            assert_eq!(id.as_str().unwrap(), answer.header("x-request-id").unwrap());
        }
        let lines_in = |log: &str| {
            let lines = log.lines().filter(|line| line.contains("malformed request refused"));
            lines.filter(|line| line.contains(text)).map(str::to_owned).collect::<Vec<_>>()
        };
        let lines = lines_in(&node.log_text());
        assert!(lines.len() >= 2, "{request:?}: {}", node.log_text());
        for line in lines {
            for part in [&expected.0.to_string(), "127.0.0.1:"] {
                assert!(line.contains(part), "{part}: {line}");
            }
        }
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
    assert_eq!((malformed.status, &*malformed.code()), (400, "bad_request"));
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the connection ends");
    node.stop();
}
