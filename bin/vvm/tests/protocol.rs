//! HTTP as in the standards: the tests send raw bytes over a socket, and check the status, the code
//! and the end of the connection.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

#[path = "support/node.rs"]
mod node;

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    thread::sleep,
    time::{Duration, Instant},
};

use node::{NodeProcess, PATIENCE, command_path, request, workspace_path};
use serde_json::Value;

const WS: u64 = 1;

fn node() -> (tempfile::TempDir, NodeProcess) {
    let folder = tempfile::tempdir().unwrap();
    let config = "[storage]\ndriver = \"mem\"\n[http]\nbody_bytes = 10000\n";
    let node = NodeProcess::start(folder.path(), config).ready();
    node.create_workspace(WS);
    (folder, node)
}

/// An answer that ends where its head says.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn read(stream: &mut impl Read) -> io::Result<Answer> {
        let cut = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes).into_owned();
            io::Error::new(io::ErrorKind::UnexpectedEof, format!("no whole answer: {text:?}"))
        };
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            if stream.read(&mut byte)? == 0 {
                return Err(cut(&head));
            }
            head.push(byte[0]);
        }
        let text = String::from_utf8(head).unwrap().to_ascii_lowercase();
        if text.starts_with("http/1.1 100 ") {
            return Answer::read(stream);
        }
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length = length.unwrap_or_else(|| panic!("{text}")).parse().unwrap();
        let mut body = vec![0; length];
        stream.read_exact(&mut body)?;
        let status = text.split(' ').nth(1).unwrap().parse().unwrap();
        Ok(Answer { status, head: text, body: String::from_utf8(body).unwrap() })
    }

    fn closes(&self) -> bool {
        self.head.contains("\r\nconnection: close\r\n")
    }

    /// Returns the code of a problem. The problem must repeat the status.
    fn code(&self) -> String {
        assert!(self.head.contains("content-type: application/problem+json\r\n"), "{self:?}");
        let problem: Value = serde_json::from_str(&self.body).unwrap();
        assert_eq!(problem["status"], self.status, "{self:?}");
        assert!(!problem["reason"].as_str().unwrap().is_empty(), "{self:?}");
        problem["code"].as_str().unwrap().to_owned()
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Sends bytes on a new connection, and returns the answer.
fn answer_to(address: SocketAddr, request: &str) -> Answer {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).unwrap();
    Answer::read(&mut stream).unwrap_or_else(|error| panic!("{request:?}: {error}"))
}

/// A request with the answer 200. These headers replace `Host`.
fn get(headers: &str) -> String {
    format!("GET {}/cdocs/shop.Article HTTP/1.1\r\n{headers}\r\n", workspace_path(WS))
}

/// The node took `Host: [::1]evil.com` and `localhost:1@evil.com` for this machine. It also served
/// targets of other hosts, and requests without `Host`. So a web page could send commands through a
/// name that its own DNS resolved to this machine.
#[test]
fn a_request_names_one_host_and_that_is_this_machine() {
    let (_folder, node) = node();
    let host = |host: &str| get(&format!("Host: {host}\r\n"));
    let at = |target: &str, host: &str| {
        let path = format!("{}/cdocs/shop.Article", workspace_path(WS));
        format!("GET {} HTTP/1.1\r\n{host}\r\n", target.replace("{path}", &path))
    };
    let own = "Host: localhost\r\n";
    for request in [
        host("localhost"),
        host("LOCALHOST:8822"),
        host("localhost."),
        host("localhost:"),
        host("127.1.2.3:1"),
        host("[::1]:8822"),
        host("[::ffff:127.0.0.1]"),
        at("http://localhost{path}", own),
        at("HTTP://LOCALHOST:1{path}", own),
        // The host of the target counts, not `Host`.
        at("http://localhost{path}", "Host: evil.example\r\n"),
        format!("GET {}/cdocs/shop.Article HTTP/1.0\r\n\r\n", workspace_path(WS)),
    ] {
        let answer = answer_to(node.api, &request);
        assert_eq!(answer.status, 200, "{request}: {answer:?}");
    }
    let bad = (400, "bad_request");
    let misdirected = (421, "misdirected");
    for (request, expected) in [
        (get(""), bad),
        (get("Host: localhost\r\nHost: localhost\r\n"), bad),
        (get("Host: localhost\r\nHost: evil.example\r\n"), bad),
        (host(""), bad),
        (host("localhost, localhost"), bad),
        (host("[::1]evil.com"), bad),
        (host("localhost:1@evil.com"), bad),
        (host("user@localhost"), bad),
        (host("localhost:http"), bad),
        (host("localhost:65536"), bad),
        (host("[::1%25lo]"), bad),
        (host("::1"), bad),
        (host("evil.example"), misdirected),
        (host("localhost.evil.example:8822"), misdirected),
        (host("127.0.0.1.evil.example"), misdirected),
        (host("10.0.0.1:8822"), misdirected),
        (host("0.0.0.0:8822"), misdirected),
        (at("http://evil.example{path}", own), misdirected),
        (at("https://localhost{path}", own), misdirected),
        (at("ftp://localhost{path}", own), misdirected),
        (at("http://localhost{path}", ""), bad),
        (at("http://user@localhost{path}", own), bad),
        (at("http://localhost:1@evil.com{path}", own), bad),
        (at("http://[::1]evil.com{path}", own), bad),
        (at("localhost:8822", own), bad),
        (format!("CONNECT localhost:8822 HTTP/1.1\r\n{own}\r\n"), (501, "not_implemented")),
    ] {
        for address in [node.api, node.admin] {
            let answer = answer_to(address, &request);
            assert_eq!((answer.status, &*answer.code()), expected, "{request}: {answer:?}");
        }
    }
    let start = Instant::now();
    while !node.log_text().contains("the request is for the host evil.example") {
        assert!(start.elapsed() < PATIENCE, "{}", node.log_text());
        sleep(Duration::from_millis(5));
    }
    node.stop();
}

/// The node took `Origin: http://[::1]evil.com` for a page of this machine, and ignored the header
/// in which browsers report the site of a page.
#[test]
fn a_page_of_another_site_is_refused() {
    let (_folder, node) = node();
    let with = |header: &str| get(&format!("Host: localhost\r\n{header}\r\n"));
    for header in [
        "Origin: http://localhost:3000",
        "Origin: http://[::1]:3000",
        "Sec-Fetch-Site: none",
        "Sec-Fetch-Site: same-origin",
        "Sec-Fetch-Site: same-site",
        "Sec-Fetch-Site: of-another-day",
    ] {
        assert_eq!(answer_to(node.api, &with(header)).status, 200, "{header}");
    }
    for header in [
        "Origin: null",
        "Origin:",
        "Origin: localhost",
        "Origin: http://[::1]evil.com",
        "Origin: http://localhost:1@evil.com",
        "Origin: http://localhost/",
        "Origin: https://evil.example",
        "Origin: http://localhost\r\nOrigin: https://evil.example",
        "Sec-Fetch-Site: cross-site",
        "Origin: http://localhost:3000\r\nSec-Fetch-Site: cross-site",
    ] {
        for address in [node.api, node.admin] {
            let answer = answer_to(address, &with(header));
            assert_eq!((answer.status, &*answer.code()), (403, "foreign"), "{header}: {answer:?}");
        }
    }
    node.stop();
}

/// The body of a command that makes one record.
const ROW: &str = r#"{"rows":[{"id":1,"table":"shop.Article"}]}"#;

/// Returns a request for a command, with the headers and the body.
fn post(version: &str, headers: &str, body: &str) -> String {
    let path = command_path(WS, "sys.CUD");
    format!("POST {path} HTTP/{version}\r\nHost: localhost\r\n{headers}\r\n\r\n{body}")
}

/// The node read a body in `gzip, chunked` as if the body were not compressed.
#[test]
fn a_body_is_read_only_if_its_frame_is_certain() {
    let (_folder, node) = node();
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
    for (version, headers, body, expected) in [
        ("1.1", "Transfer-Encoding: gzip, chunked", &*chunked, none),
        ("1.1", "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", &chunked, none),
        ("1.1", "Transfer-Encoding: identity, chunked", &chunked, none),
        ("1.1", "Transfer-Encoding: chunked, chunked", &chunked, bad),
        ("1.1", "Transfer-Encoding: chunked, gzip", &chunked, bad),
        ("1.1", "Transfer-Encoding: gzip", row, bad),
        ("1.1", "Transfer-Encoding: xchunked", &chunked, bad),
        ("1.0", "Transfer-Encoding: chunked", &chunked, bad),
        ("1.1", "Transfer-Encoding: chunked", "zz\r\n", bad),
        ("1.1", "Content-Length: 1\r\nContent-Length: 2", row, bad),
        ("1.1", "Content-Length: 1, 1", row, bad),
        ("1.1", "Content-Length: +1", row, bad),
        ("1.1", "Content-Length: 99999999999999999999", row, bad),
    ] {
        let answer = answer_to(node.api, &post(version, headers, body));
        assert_eq!((answer.status, &*answer.code()), expected, "{headers}: {answer:?}");
    }
    assert_eq!(node.logged(WS).len(), done, "a refused command was done");
    node.stop();
}

/// The node ignored `Expect: 999`. It accepted `Expect: 100-continue,` and never sent 100 Continue,
/// so a client that waited got 408.
#[test]
fn an_expectation_that_the_node_does_not_know_is_refused() {
    let (_folder, node) = node();
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

/// A request that hyper could not read got only a status, and the log had no line for the request.
#[test]
fn a_request_that_cannot_be_read_gets_a_problem_and_a_line_in_the_log() {
    let (_folder, node) = node();
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
        }
        let lines_in = |log: &str| {
            let lines = log.lines().filter(|line| line.contains("malformed request refused"));
            lines.filter(|line| line.contains(text)).map(str::to_owned).collect::<Vec<_>>()
        };
        // A thread of its own writes the log.
        let start = Instant::now();
        while lines_in(&node.log_text()).len() < 2 {
            assert!(start.elapsed() < PATIENCE, "{request:?}: {}", node.log_text());
            sleep(Duration::from_millis(5));
        }
        for line in lines_in(&node.log_text()) {
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
    let (_folder, node) = node();
    let mut stream = connect(node.api);
    let both = format!("{}G@T / HTTP/1.1\r\n\r\n", get("Host: localhost\r\n"));
    stream.write_all(both.as_bytes()).unwrap();
    assert_eq!(Answer::read(&mut stream).unwrap().status, 200);
    let malformed = Answer::read(&mut stream).unwrap();
    assert_eq!((malformed.status, &*malformed.code()), (400, "bad_request"));
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the connection ends");
    node.stop();
}

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

/// After such an answer hyper closed the connection, but the answer did not say so. Then 4 to 5 of
/// 100 next requests failed with EPIPE.
#[test]
fn the_next_request_of_a_client_succeeds_after_an_early_answer() {
    const SAMPLE: u32 = 200;
    const LONG: u32 = 5_000;
    let rounds = if trialkit::is_long() { LONG } else { SAMPLE };
    let (_folder, node) = node();
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
    let (_folder, node) = node();
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

/// The node refused HEAD with 405. RFC 9110, section 9.1: a server must support GET and HEAD.
#[test]
fn head_is_answered_like_get_without_the_body() {
    let (_folder, node) = node();
    let docs = format!("{}/docs/shop.Article", workspace_path(WS));
    let (status, made) = request(node.api, "POST", &docs, &[], r#"{"fields":{"name":"Tea"}}"#);
    assert_eq!(status, 201, "{made}");
    let ask = |address, method: &str, path: &str| {
        let mut stream = connect(address);
        let headers = "Host: localhost\r\nConnection: close\r\nX-Request-Id: tea";
        write!(stream, "{method} {path} HTTP/1.1\r\n{headers}\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let head = head.to_ascii_lowercase();
        let head = head.lines().filter(|line| !line.starts_with("date: ")).map(str::to_owned);
        (head.collect::<Vec<_>>(), body.to_owned())
    };
    for (address, path) in [
        (node.api, format!("{docs}/{}", made["newIds"]["1"])),
        (node.api, format!("{docs}/1")),
        (node.api, format!("{}/cdocs/shop.Article", workspace_path(WS))),
        (node.admin, "/livez".to_owned()),
        (node.admin, "/readyz".to_owned()),
    ] {
        let (get, body) = ask(address, "GET", &path);
        assert!(!body.is_empty());
        assert_eq!(ask(address, "HEAD", &path), (get, String::new()), "{path}");
    }
    // These answers differ from call to call, or have no length.
    for (address, path) in [
        (node.api, format!("{}/wlog", workspace_path(WS))),
        (node.admin, "/status".to_owned()),
        (node.admin, "/metrics".to_owned()),
    ] {
        let (head, body) = ask(address, "HEAD", &path);
        assert_eq!((&*head[0], &*body), ("http/1.1 200 ok", ""), "{path}");
    }
    node.stop();
}
