//! The live page of the admin endpoint, its stream of events, and the actions of its buttons.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    thread::sleep,
    time::{Duration, Instant},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::Value;
use sha2::{Digest, Sha256};
use shop::http_client::request;

use crate::{
    admin::actions,
    support::{Answer, PATIENCE, TestNode, answer_to, code, connect},
};

/// The number of streams of events at the same time.
const STREAMS: usize = 8;

fn get(node: &TestNode, path: &str) -> Answer {
    answer_to(node.admin, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
}

/// A `POST` request with these headers.
fn post(node: &TestNode, path: &str, headers: &str) -> Answer {
    answer_to(node.admin, &format!("POST {path} HTTP/1.1\r\nHost: localhost:1\r\n{headers}\r\n"))
}

/// An open stream of events.
struct Events(BufReader<TcpStream>);

impl Events {
    fn open(node: &TestNode) -> Result<Events, Answer> {
        let mut stream = connect(node.admin);
        write!(stream, "GET /cluster/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut stream = BufReader::new(stream);
        let mut answer = Answer::read_head(&mut stream).unwrap();
        if answer.status == 200 {
            assert_eq!(answer.header("content-type"), Some("text/event-stream"));
            assert_eq!(answer.header("cache-control"), Some("no-store"));
            assert_eq!(answer.header("x-accel-buffering"), Some("no"));
            return Ok(Events(stream));
        }
        let length = answer.header("content-length").unwrap().parse().unwrap();
        stream.take(length).read_to_string(&mut answer.body).unwrap();
        Err(answer)
    }

    /// The next line that is an event or a comment.
    fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "the stream ended");
            if line.starts_with("data: ") || line.starts_with(':') {
                return line.trim_end().to_owned();
            }
        }
    }
}

/// The content of the only element of this name.
fn content<'a>(html: &'a str, element: &str) -> &'a str {
    let pieces: Vec<_> = html.split(&format!("<{element}>")).collect();
    assert_eq!(pieces.len(), 2, "{element}");
    pieces[1].split_once(&format!("</{element}>")).unwrap().0
}

#[test]
fn the_pages_run_nothing_but_their_own_script_and_style() {
    let node = TestNode::start();
    for (address, path) in [(node.admin, "/"), (node.api, "/api/v2/")] {
        check_page(address, path);
    }
    node.stop();
}

fn check_page(address: SocketAddr, path: &str) {
    let mut stream = connect(address);
    // `Answer` keeps no capitals of a head, and the hashes have some.
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, html) = text.split_once("\r\n\r\n").unwrap();
    let header = |name: &str| {
        let mut headers = head.lines().filter_map(|line| line.split_once(": "));
        headers.find(|(key, _)| *key == name).unwrap_or_else(|| panic!("{name}: {head}")).1
    };
    assert_eq!(header("content-type"), "text/html; charset=utf-8");
    assert_eq!(header("x-content-type-options"), "nosniff");
    assert_eq!(header("referrer-policy"), "no-referrer");
    assert_eq!(header("cache-control"), "no-store");
    let hash = |element| {
        let digest = Sha256::digest(content(html, element));
        format!("'sha256-{}'", BASE64_STANDARD.encode(digest))
    };
    let (script, style) = (hash("script"), hash("style"));
    assert_eq!(
        header("content-security-policy"),
        format!(
            "default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; \
             frame-ancestors 'none'; base-uri 'none'; form-action 'none'; \
             require-trusted-types-for 'script'; trusted-types 'none'"
        )
    );
    for foreign in ["http://", "https://", "innerHTML", "src=", "href=", " style=", " onclick="] {
        assert!(!html.contains(foreign), "{foreign}");
    }
}

#[test]
fn the_status_of_the_cluster_is_json_and_the_first_event() {
    let node = TestNode::start();
    // The node reads the rows a moment after it has changed them.
    let start = Instant::now();
    let mut cluster = get(&node, "/cluster").json();
    while cluster["partitions"][0]["owner"].is_null() {
        assert!(start.elapsed() < PATIENCE, "{cluster}");
        sleep(Duration::from_millis(10));
        cluster = get(&node, "/cluster").json();
    }
    assert_eq!(cluster["seats"], 1, "{cluster}");
    assert_eq!(cluster["members"][0]["id"], cluster["thisMember"], "{cluster}");
    assert_eq!(cluster["members"][0]["advertised"], node.api.to_string(), "{cluster}");
    assert_eq!(cluster["partitions"].as_array().unwrap().len(), 10, "{cluster}");
    assert_eq!(cluster["partitions"][0]["state"], "ready", "{cluster}");
    let mut events = Events::open(&node).unwrap_or_else(|answer| panic!("{answer:?}"));
    let line = events.line();
    let event: Value = serde_json::from_str(line.strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(event["partitions"].as_array().unwrap().len(), 10, "{event}");
    node.stop();
}

#[test]
fn streams_are_limited_and_probes_are_not() {
    let node = TestNode::start();
    let open = || Events::open(&node);
    let mut streams: Vec<_> = (0..STREAMS).map(|_| open().unwrap_or_else(|_| panic!())).collect();
    let refused = open().err().unwrap();
    assert_eq!((refused.status, &*refused.code()), (503, "too_many_streams"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(get(&node, "/readyz").status, 200);
    assert_eq!(get(&node, "/cluster").status, 200);
    // The place of a stream whose client has gone is free again.
    streams.pop();
    let start = Instant::now();
    while open().is_err() {
        assert!(start.elapsed() < PATIENCE);
        sleep(Duration::from_millis(50));
    }
    node.stop();
}

/// An open stream must not delay the stop by the time that answers have to end.
#[test]
fn streams_end_at_once_when_the_node_stops() {
    let node = TestNode::start();
    let mut streams: Vec<_> =
        (0..STREAMS).map(|_| Events::open(&node).unwrap_or_else(|_| panic!())).collect();
    streams.iter_mut().for_each(|stream| assert!(stream.line().starts_with("data: ")));
    let start = Instant::now();
    node.stop();
    let took = start.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
    for Events(mut stream) in streams {
        let mut rest = String::new();
        stream.read_to_string(&mut rest).unwrap();
        assert!(rest.ends_with("0\r\n\r\n"), "the stream was cut: {rest}");
    }
}

/// A web page that an operator visits could send an action to the node with the rights of its
/// operator, even through a proxy that authenticates.
#[test]
fn only_the_own_page_of_a_browser_sends_actions() {
    const ADMIN: &str = "X-Vvm-Admin: 1\r\n";
    const ORIGIN: &str = "Origin: http://localhost:1\r\n";
    let node = TestNode::start();
    for path in actions() {
        for headers in [
            ORIGIN.to_owned(),
            format!("{ORIGIN}X-Vvm-Admin: 0\r\n"),
            format!("Origin: http://localhost:2\r\n{ADMIN}"),
            format!("Origin: http://localhost\r\n{ADMIN}"),
            format!("Origin: http://127.0.0.1:1\r\n{ADMIN}"),
            format!("Origin: null\r\n{ADMIN}"),
            format!("{ORIGIN}{ORIGIN}{ADMIN}"),
            format!("{ORIGIN}Sec-Fetch-Site: same-site\r\n{ADMIN}"),
            format!("{ORIGIN}Sec-Fetch-Site: none\r\n{ADMIN}"),
            format!("Sec-Fetch-Site: same-origin\r\n{ADMIN}"),
        ] {
            let answer = post(&node, path, &headers);
            assert_eq!((answer.status, &*answer.code()), (403, "foreign"), "{path} {headers}");
        }
        assert_eq!(code(request(node.admin, "GET", path, &[], "")).0, 405, "{path}");
    }
    // The action passed the check: it is refused only because its parameters are missing.
    for headers in [
        String::new(),
        format!("{ORIGIN}{ADMIN}"),
        format!("{ORIGIN}Sec-Fetch-Site: same-origin\r\n{ADMIN}"),
        // A proxy may serve the page by TLS.
        format!("Origin: https://LOCALHOST:1\r\n{ADMIN}"),
    ] {
        let answer = post(&node, "/repairs/mark", &headers);
        assert_eq!((answer.status, &*answer.code()), (400, "bad_request"), "{headers}");
        let answer = post(&node, "/cluster/move", &headers);
        assert_eq!((answer.status, &*answer.code()), (400, "bad_request"), "{headers}");
    }
    node.stop();
}

#[test]
fn each_view_answers_and_is_not_an_action() {
    let node = TestNode::start();
    for path in ["/", "/livez", "/readyz", "/metrics", "/status", "/cluster", "/repairs"] {
        let (status, _) = request(node.admin, "POST", path, &[], "");
        assert_eq!(status, 405, "{path}");
        let mut stream = connect(node.admin);
        write!(stream, "HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        assert_eq!(Answer::read_head(&mut stream).unwrap().status, 200, "{path}");
    }
    let unknown = get(&node, "/nowhere");
    assert_eq!((unknown.status, &*unknown.code()), (404, "not_found"));
    node.stop();
}
