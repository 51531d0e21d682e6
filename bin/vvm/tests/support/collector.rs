//! A collector of traces in this process.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, sleep},
    time::{Duration, Instant},
};

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest, common::v1::any_value::Value, trace::v1::Span,
};
use prost::Message as _;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A collector of spans by OTLP over HTTP.
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    pub(crate) got: Arc<Mutex<Got>>,
    /// Whether requests get no answer.
    pub(crate) hangs: Arc<AtomicBool>,
}

/// What the collector got.
#[derive(Default)]
pub(crate) struct Got {
    pub(crate) heads: Vec<String>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) spans: Vec<Span>,
    /// The attributes of the resources: keys and texts.
    pub(crate) resources: Vec<(String, String)>,
}

impl Collector {
    pub(crate) fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (got, hangs) = (Arc::new(Mutex::new(Got::default())), Arc::new(AtomicBool::new(false)));
        let collector = Collector { address, got: Arc::clone(&got), hangs: Arc::clone(&hangs) };
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (got, hangs) = (Arc::clone(&got), Arc::clone(&hangs));
                thread::spawn(move || serve(stream.unwrap(), &got, &hangs));
            }
        });
        collector
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        self.got.lock().unwrap().spans.clone()
    }

    /// Waits until the collector has spans that are wanted, and returns all of them.
    pub(crate) fn wait_for(&self, are_wanted: impl Fn(&[Span]) -> bool) -> Vec<Span> {
        let start = Instant::now();
        loop {
            let spans = self.spans();
            if are_wanted(&spans) {
                return spans;
            }
            assert!(start.elapsed() < PATIENCE, "{spans:#?}");
            sleep(Duration::from_millis(10));
        }
    }
}

/// Reads one request, and answers it.
fn serve(stream: TcpStream, got: &Mutex<Got>, hangs: &AtomicBool) {
    let mut stream = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = text.trim().parse().unwrap();
        }
        head += &line;
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    if hangs.load(Ordering::SeqCst) {
        sleep(PATIENCE);
        return;
    }
    let export = ExportTraceServiceRequest::decode(&body[..]).unwrap();
    let mut got = got.lock().unwrap();
    got.heads.push(head);
    got.bytes.extend(body);
    for resource in export.resource_spans {
        let attributes = resource.resource.unwrap().attributes;
        got.resources.extend(attributes.into_iter().map(|one| {
            let text = match one.value.and_then(|value| value.value) {
                Some(Value::StringValue(text)) => text,
                other => panic!("{} is no text: {other:?}", one.key),
            };
            (one.key, text)
        }));
        got.spans.extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
    }
    // A node that stops does not wait.
    let _ = stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
}
