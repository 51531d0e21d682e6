//! The body of a request in its frame: its length, its coding and `Expect`.

use std::io::{Read, Write};

use shop::http_client::command_path;

use crate::support::{Answer, ROW, TestNode, WS, answer_to, connect};

/// Returns a request for a command, with the headers and the body.
fn post(version: &str, headers: &str, body: &str) -> String {
    let path = command_path(WS, "sys.CUD");
    format!("POST {path} HTTP/{version}\r\nHost: localhost\r\n{headers}\r\n\r\n{body}")
}

/// The node read a body in `gzip, chunked` as if the body were not compressed.
#[test]
fn a_body_is_read_only_if_its_frame_is_certain() {
    let node = TestNode::with(|settings| settings.limits.body_bytes = 10_000);
    let row = ROW;
    let chunked = format!("{:x}\r\n{row}\r\n0\r\n\r\n", row.len());
    let length = format!("Content-Length: {}", row.len());
    let twice = format!("{length}\r\n{length}");
    for (headers, body, closes) in [
        (&*length, row, false),
        (&twice, row, false),
        ("Transfer-Encoding: chunked", &chunked, false),
        ("Transfer-Encoding: Chunked", &chunked, false),
        (&format!("{length}\r\nExpect: 100-Continue"), row, false),
        // An intermediary may have used the other length.
        (&format!("{length}\r\nTransfer-Encoding: chunked"), &chunked, true),
        (&format!("Transfer-Encoding: chunked\r\n{length}"), &chunked, true),
    ] {
        let answer = answer_to(node.api, &post("1.1", headers, body));
        assert_eq!((answer.status, answer.closes()), (200, closes), "{headers}: {answer:?}");
    }
    let done = node.logged(WS).len();
    let (bad, none) = ((400, "bad_request"), (501, "not_implemented"));
    // hyper cannot tell where such a body ends. It answers by itself, without a body.
    let no_end = (400, "");
    for (version, headers, body, expected) in [
        ("1.1", "Transfer-Encoding: gzip, chunked", &*chunked, none),
        ("1.1", "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", &chunked, none),
        ("1.1", "Transfer-Encoding: identity, chunked", &chunked, none),
        ("1.1", "Transfer-Encoding: chunked, chunked", &chunked, bad),
        ("1.1", "Transfer-Encoding: chunked, gzip", &chunked, no_end),
        ("1.1", "Transfer-Encoding: gzip", row, no_end),
        ("1.1", "Transfer-Encoding: xchunked", &chunked, no_end),
        ("1.0", "Transfer-Encoding: chunked", &chunked, no_end),
        ("1.1", "Transfer-Encoding: chunked", "zz\r\n", bad),
        ("1.1", "Content-Length: 1\r\nContent-Length: 2", row, no_end),
        ("1.1", "Content-Length: 1, 1", row, no_end),
        ("1.1", "Content-Length: +1", row, no_end),
        ("1.1", "Content-Length: 99999999999999999999", row, no_end),
    ] {
        let answer = answer_to(node.api, &post(version, headers, body));
        let code = if answer.body.is_empty() { String::new() } else { answer.code() };
        assert_eq!((answer.status, &*code), expected, "{headers}: {answer:?}");
        assert!(answer.closes() || expected != no_end, "{headers}: {answer:?}");
    }
    assert_eq!(node.logged(WS).len(), done, "a refused command was done");
    node.stop();
}

/// The node ignored `Expect: 999`. It accepted `Expect: 100-continue,` and never sent 100 Continue,
/// so a client that waited got 408.
#[test]
fn an_expectation_that_the_node_does_not_know_is_refused() {
    let node = TestNode::with(|settings| settings.limits.body_bytes = 10_000);
    let row = ROW;
    let length = format!("Content-Length: {}", row.len());
    let done = node.logged(WS).len();
    for expectation in [
        "999",
        "",
        "100-continue, 999",
        "100-continue,",
        ", 100-continue",
        "100-continue, 100-continue",
        "100-continue\r\nExpect: 100-continue",
        "100-continue\r\nExpect: 999",
        "999\r\nExpect: 100-continue",
        "100-continue; now",
        "\u{e9}",
    ] {
        // A client that waits for `100 Continue` sends no body, and gets the answer at once.
        for body in [row, ""] {
            let headers = format!("{length}\r\nExpect: {expectation}");
            let answer = answer_to(node.api, &post("1.1", &headers, body));
            let expected = (417, "expectation_failed");
            assert_eq!((answer.status, &*answer.code()), expected, "{headers}: {answer:?}");
        }
    }
    assert_eq!(node.logged(WS).len(), done, "a refused command was done");
    for expectation in ["999", "100-continue,"] {
        let headers = format!("{length}\r\nExpect: {expectation}");
        let old = answer_to(node.api, &post("1.0", &headers, row));
        assert_eq!(old.status, 200, "HTTP/1.0 has no expectations: {old:?}");
    }
    // A client that waits for `100 Continue` gets it, and then sends its body.
    let mut waits = connect(node.api);
    let head = post("1.1", &format!("{length}\r\nExpect: 100-Continue"), "");
    waits.write_all(head.as_bytes()).unwrap();
    let mut interim = [0; 25];
    waits.read_exact(&mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    waits.write_all(row.as_bytes()).unwrap();
    assert_eq!(Answer::read(&mut waits).unwrap().status, 200);
    node.stop();
}
