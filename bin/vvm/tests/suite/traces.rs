//! Traces of a node as a process: a collector in this process gets its spans, is slow, or is away.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::Command,
    sync::atomic::Ordering,
    thread::{self, sleep},
    time::{Duration, Instant},
};

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use rustix::process::Signal;
use shop::http_client::{command_path, request, try_request};
use tempfile::TempDir;

use crate::{
    collector::{Collector, PATIENCE},
    node::{self, NodeProcess},
};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CLIENT: &str = "b7ad6b7169203331";

const ROW: &str = r#"{"rows":[{"id":1,"table":"shop.Article","fields":{"name":"hidden"}}]}"#;

fn config(collector: SocketAddr, more: &str) -> String {
    format!("[storage]\ndriver = \"mem\"\n[traces]\nendpoint = \"http://{collector}\"\n{more}\n")
}

fn start(config: &str) -> (TempDir, NodeProcess) {
    let folder = tempfile::tempdir().unwrap();
    let node = NodeProcess::start(folder.path(), config).ready();
    node.create_workspace(7);
    (folder, node)
}

fn command(node: &NodeProcess, headers: &[(&str, &str)]) -> u16 {
    request(node.api, "POST", &command_path(7, "sys.CUD"), headers, ROW).0
}

fn parent(flags: &str) -> String {
    format!("00-{TRACE}-{CLIENT}-{flags}")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The value of a counter of spans; 0 if the node does not have it.
fn counted(node: &NodeProcess, outcome: &str) -> u64 {
    let (_, metrics) = request(node.admin, "GET", "/metrics", &[], "");
    let name = format!("vvm_trace_spans_total{{outcome=\"{outcome}\"}} ");
    let line = metrics.as_str().unwrap().lines().find_map(|line| line.strip_prefix(&*name));
    line.map_or(0, |value| value.parse().unwrap())
}

#[test]
fn a_collector_gets_the_spans_of_sampled_requests_only() {
    let collector = Collector::start();
    let (_folder, node) = start(&config(collector.address, "sample_ratio = 0.0"));
    assert_eq!(command(&node, &[]), 200);
    assert_eq!(command(&node, &[("traceparent", &parent("00"))]), 200);
    let headers = [
        ("traceparent", &*parent("01")),
        ("tracestate", "vendor=1"),
        ("idempotency-key", "hidden"),
    ];
    assert_eq!(command(&node, &headers), 200);
    let spans = collector.wait_for(|spans| spans.len() >= 3);
    let named = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
    let (request, command, group) = (named("POST command"), named("command"), named("group"));
    assert_eq!((spans.len(), request.kind), (3, SpanKind::Server as i32));
    assert_eq!(hex(&request.parent_span_id), CLIENT);
    assert_eq!(command.parent_span_id, request.span_id);
    assert_eq!(group.parent_span_id, command.span_id);
    assert_eq!(command.links[0].span_id, group.span_id);
    for span in &spans {
        assert_eq!((hex(&span.trace_id).as_str(), span.trace_state.as_str()), (TRACE, "vendor=1"));
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{span:?}");
    }
    let got = collector.got.lock().unwrap();
    assert!(got.heads[0].starts_with("POST /v1/traces HTTP/1.1\r\n"), "{:?}", got.heads);
    // Each export had a second content type, `application/json`, before the right one. A real
    // collector takes the first, and answered 400.
    let types = |head: &str| -> Vec<String> {
        let lines = head.lines().filter(|line| line.to_lowercase().starts_with("content-type:"));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(types(&got.heads[0]), ["content-type: application/x-protobuf"]);
    for (key, value) in [("service.name", "vvm"), ("service.instance.id", &*node.api.to_string())] {
        let wanted = (key.to_owned(), value.to_owned());
        assert!(got.resources.contains(&wanted), "{:?}", got.resources);
    }
    let is_in = |text: &str| got.bytes.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(is_in("demo/shop") && !is_in("hidden"), "a body or a key is in a span");
    drop(got);
    assert_eq!((counted(&node, "exported"), counted(&node, "failed")), (3, 0));
    node.stop();
}

#[test]
fn requests_without_a_trace_are_sampled_by_the_ratio() {
    let collector = Collector::start();
    let (_folder, node) = start(&config(collector.address, "sample_ratio = 0.5"));
    const REQUESTS: usize = 400;
    for _ in 0..REQUESTS {
        assert_eq!(request(node.api, "GET", "/none", &[], "").0, 404);
    }
    node.stop();
    // A stop exports all spans. The workspace of the test has at most three more.
    let spans = collector.spans().len();
    assert!((REQUESTS / 4..REQUESTS * 3 / 4).contains(&spans), "{spans} of {REQUESTS}");
}

#[test]
fn a_stop_exports_the_last_spans() {
    let collector = Collector::start();
    let (_folder, node) = start(&config(collector.address, "sample_ratio = 0.0"));
    assert_eq!(command(&node, &[("traceparent", &parent("01"))]), 200);
    node.stop();
    assert_eq!(collector.spans().len(), 3);
}

#[test]
fn without_a_collector_spans_are_dropped_and_requests_are_not_slower() {
    let (_folder, node) = start(&config(node::free(), "sample_ratio = 1.0"));
    for _ in 0..50 {
        assert_eq!(command(&node, &[]), 200);
    }
    let start = Instant::now();
    while counted(&node, "failed") < 150 {
        assert!(start.elapsed() < PATIENCE, "{}", counted(&node, "failed"));
        sleep(Duration::from_millis(20));
    }
    assert_eq!(counted(&node, "exported"), 0);
    let log = node.log_text();
    assert_eq!(log.matches("traces not exported").count(), 1, "{log}");
    node.stop();
}

/// A collector that takes requests and answers none. The queue fills up, and further spans are
/// dropped.
#[test]
fn a_collector_that_hangs_slows_neither_requests_nor_the_stop() {
    let collector = Collector::start();
    collector.hangs.store(true, Ordering::SeqCst);
    let (_folder, mut node) = start(&config(collector.address, "sample_ratio = 1.0"));
    // Each refusal is one span. The queue and a batch have room for 4,608.
    let slowest = thread::scope(|scope| {
        let clients: Vec<_> = (0..8).map(|_| scope.spawn(|| refusals(node.api, 700))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).max().unwrap()
    });
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    assert!(counted(&node, "dropped") > 0, "{}", counted(&node, "dropped"));
    assert_eq!(command(&node, &[]), 200);
    let start = Instant::now();
    node.signal(Signal::TERM);
    assert_eq!(node.ended().code(), Some(0), "{}", node.log_text());
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert!(node.log_text().contains("did not take the last spans"), "{}", node.log_text());
}

/// Sends requests on one connection, and returns the longest time of an answer.
fn refusals(api: SocketAddr, number: usize) -> Duration {
    let mut stream = BufReader::new(TcpStream::connect(api).unwrap());
    let mut slowest = Duration::ZERO;
    for _ in 0..number {
        let start = Instant::now();
        stream.get_mut().write_all(b"GET /none HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let (mut line, mut length) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            stream.read_line(&mut line).unwrap();
            if let Some(text) = line.strip_prefix("content-length: ") {
                length = text.trim().parse().unwrap();
            }
        }
        stream.read_exact(&mut vec![0; length]).unwrap();
        slowest = slowest.max(start.elapsed());
    }
    slowest
}

#[test]
fn a_wrong_section_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let here = "endpoint = \"http://127.0.0.1:4318\"";
    for (section, why) in [
        ("", "endpoint"),
        ("endpoint = \"127.0.0.1:4318\"", "has no scheme"),
        ("endpoint = \"http://127.0.0.1:4318/v1/traces\"", "without a path"),
        ("endpoint = \"https://127.0.0.1:4318\"", "needs `traces.ca_file`"),
        (&format!("{here}\nsample_ratio = 1.5"), "from 0 to 1"),
        (&format!("{here}\nsample_ratio = nan"), "from 0 to 1"),
        // The error named the endpoint, and the option of a command line.
        (&format!("{here}\nca_file = \"none.pem\"\n"), "`traces.ca_file`: cannot read the file of"),
        (
            &format!("{here}\nca_file = \"node.toml\"\n"),
            "`traces.ca_file`: node.toml: the file has",
        ),
        (&format!("{here}\ntoken_file = \"none\"\n"), "`traces.token_file`: cannot read the token"),
        (
            &format!("{here}\ntoken_file = \"node.toml\"\n"),
            "`traces.token_file`: node.toml: the file must hold the token alone",
        ),
        ("endpoint = \"http://10.0.0.1:4318\"\ntoken_file = \"token\"", "in `traces.ca_file`"),
    ] {
        let (code, text) = check(folder.path(), section);
        assert!(code == 3 && text.contains(why), "{section}: {code} {text}");
    }
    assert_eq!(check(folder.path(), here), (0, String::new()));
    // The text of a path depended on the scheme, on the port and on the other keys.
    for address in [
        "http://127.0.0.1:4318/v1/traces",
        "http://collector/v1/traces",
        "https://127.0.0.1:4318/v1/traces",
        "127.0.0.1:4318/v1/traces",
        "http://127.0.0.1:4318//",
        "http://127.0.0.1:4318?a=b",
    ] {
        let (code, text) = check(folder.path(), &format!("endpoint = \"{address}\""));
        let why = "`traces.endpoint`: the address has a path, and the node adds `/v1/traces`: the address \
                   of a collector without a path is expected, such as \"http://127.0.0.1:4318\"\n";
        assert!(code == 3 && text.ends_with(why), "{address}: {code} {text}");
    }
    let with_slash = "endpoint = \"http://127.0.0.1:4318/\"";
    assert_eq!(check(folder.path(), with_slash), (0, String::new()));
}

fn check(folder: &Path, section: &str) -> (i32, String) {
    std::fs::write(folder.join("node.toml"), format!("[traces]\n{section}\n")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_vvm"));
    let command = command.args(["config", "check", "--config", "node.toml"]).current_dir(folder);
    let output = command.env_remove("RUST_LOG").output().unwrap();
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The token of the collector is sent, and is in no log.
#[test]
fn a_collector_gets_its_token() {
    let collector = Collector::start();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), "s3cret\n").unwrap();
    let config = config(collector.address, "sample_ratio = 1.0\ntoken_file = \"token\"");
    let node = NodeProcess::start(folder.path(), &config).ready();
    assert_eq!(try_request(node.api, "GET", "/none", &[], "").unwrap().0, 404);
    collector.wait_for(|spans| !spans.is_empty());
    let got = collector.got.lock().unwrap();
    assert!(got.heads[0].contains("authorization: Bearer s3cret"), "{:?}", got.heads);
    assert!(!node.log_text().contains("s3cret"), "the token is in the log");
    drop(got);
    node.stop();
}
