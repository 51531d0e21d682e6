//! The spans of requests over two nodes. The whole process has one provider of spans, so each test
//! looks for the spans of its own trace.

use std::{
    sync::{LazyLock, Mutex},
    thread::sleep,
    time::{Duration, Instant},
};

use opentelemetry::{
    Context, SpanId, global,
    trace::{SpanKind, Status},
};
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{Sampler, SdkTracerProvider, Span, SpanData, SpanProcessor},
};
use shop::http_client::{command_path, workspace_path};

use crate::support::{ClusterNode, NodeOptions, ROW, TestCluster, WS};

const PATIENCE: Duration = Duration::from_secs(20);

/// The span of the client in all traces.
const CLIENT: &str = "b7ad6b7169203331";

static ENDED: Mutex<Vec<SpanData>> = Mutex::new(Vec::new());

/// Keeps all spans that end.
#[derive(Debug)]
struct KeptSpans;

impl SpanProcessor for KeptSpans {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        ENDED.lock().unwrap().push(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Only the requests of clients that ask for it are traced.
static PROVIDER: LazyLock<()> = LazyLock::new(|| {
    let sampler = Sampler::ParentBased(Box::new(Sampler::AlwaysOff));
    let provider =
        SdkTracerProvider::builder().with_sampler(sampler).with_span_processor(KeptSpans);
    global::set_tracer_provider(provider.build());
});

fn traced() -> NodeOptions {
    LazyLock::force(&PROVIDER);
    NodeOptions { change: Some(|settings| settings.traced = true), ..NodeOptions::default() }
}

fn owner_and_entry() -> (ClusterNode, ClusterNode) {
    let cluster = TestCluster::new();
    (cluster.owner(traced()), cluster.entry(traced()))
}

/// The spans of a trace.
fn spans(trace: &str) -> Vec<SpanData> {
    let ended = ENDED.lock().unwrap();
    ended.iter().filter(|span| span.span_context.trace_id().to_string() == trace).cloned().collect()
}

/// Waits until a trace has this number of spans: a span ends a moment after its answer.
fn wait_for(trace: &str, number: usize) -> Vec<SpanData> {
    let start = Instant::now();
    loop {
        let found = spans(trace);
        if found.len() >= number {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "{found:#?}");
        sleep(Duration::from_millis(5));
    }
}

fn headers(trace: &str, flags: &str) -> String {
    format!("traceparent: 00-{trace}-{CLIENT}-{flags}\r\ntracestate: vendor=1\r\n")
}

fn only(spans: &[SpanData], is_it: impl Fn(&SpanData) -> bool) -> &SpanData {
    let found: Vec<_> = spans.iter().filter(|span| is_it(span)).collect();
    assert_eq!(found.len(), 1, "{spans:#?}");
    found[0]
}

fn named<'s>(spans: &'s [SpanData], name: &str) -> &'s SpanData {
    only(spans, |span| span.name == name)
}

fn id(span: &SpanData) -> SpanId {
    span.span_context.span_id()
}

fn attribute(span: &SpanData, key: &str) -> String {
    let found = span.attributes.iter().find(|one| one.key.as_str() == key);
    found.unwrap_or_else(|| panic!("no {key}: {span:#?}")).value.to_string()
}

#[test]
fn the_spans_of_a_forwarded_command_are_one_trace() {
    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    let (owner, entry) = owner_and_entry();
    let headers = headers(TRACE, "01") + "x-request-id: one\r\nidempotency-key: hidden\r\n";
    let done = entry.ask("POST", &command_path(WS, "sys.CUD"), &headers, ROW);
    assert_eq!(done.status, 200, "{done:?}");
    let spans = wait_for(TRACE, 5);
    assert_eq!(spans.len(), 5, "{spans:#?}");
    let arrived = |parent: SpanId| {
        let span = only(&spans, |span| {
            span.span_kind == SpanKind::Server && span.parent_span_id == parent
        });
        assert_eq!((&*span.name, span.parent_span_is_remote), ("POST command", true));
        assert_eq!(attribute(span, "vvm.app"), "demo/shop");
        assert_eq!(attribute(span, "vvm.workspace"), WS.to_string());
        assert_eq!(attribute(span, "vvm.request_id"), "one");
        assert_eq!(attribute(span, "http.response.status_code"), "200");
        span
    };
    let at_entry = arrived(SpanId::from_hex(CLIENT).unwrap());
    let forward = named(&spans, "forward");
    assert_eq!((forward.parent_span_id, &forward.span_kind), (id(at_entry), &SpanKind::Client));
    assert_eq!(attribute(forward, "server.address"), owner.cluster.to_string());
    let at_owner = arrived(id(forward));
    let command = named(&spans, "command");
    assert_eq!(command.parent_span_id, id(at_owner));
    assert_eq!(attribute(command, "vvm.outcome"), "done");
    let group = named(&spans, "group");
    assert_eq!(group.parent_span_id, id(command));
    assert_eq!(command.links.links[0].span_context, group.span_context);
    assert_eq!(attribute(group, "vvm.events"), "1");
    assert_eq!(attribute(group, "vvm.partition"), format!("demo/shop/{WS}"));
    for time in ["vvm.run_us", "vvm.log_us", "vvm.apply_us"] {
        attribute(group, time);
    }
    let is_within = |inner: &SpanData, outer: &SpanData| {
        outer.start_time <= inner.start_time && inner.end_time <= outer.end_time
    };
    assert!(is_within(forward, at_entry) && is_within(at_owner, forward), "{spans:#?}");
    assert!(is_within(command, at_owner) && is_within(group, command), "{spans:#?}");
    for span in &spans {
        assert_eq!(span.span_context.trace_state().header(), "vendor=1");
        let text = format!("{span:?}");
        assert!(!text.contains("hidden") && !text.contains("shop.Article"), "{text}");
    }
    entry.stop();
    owner.stop();
}

#[test]
fn a_request_that_is_not_sampled_has_no_span_on_any_node() {
    const TRACE: &str = "0af7651916cd43dd8448eb211c803100";
    let (owner, entry) = owner_and_entry();
    let done = entry.ask("POST", &command_path(WS, "sys.CUD"), &headers(TRACE, "00"), ROW);
    assert_eq!(done.status, 200, "{done:?}");
    const NEXT: &str = "0af7651916cd43dd8448eb211c803101";
    let done = entry.ask("POST", &command_path(WS, "sys.CUD"), &headers(NEXT, "01"), ROW);
    assert_eq!(done.status, 200, "{done:?}");
    // The spans of the later command have ended, so those of the earlier one would have, too.
    wait_for(NEXT, 5);
    assert_eq!(spans(TRACE), []);
    entry.stop();
    owner.stop();
}

#[test]
fn a_refusal_is_named_and_a_fault_is_an_error() {
    const TRACE: &str = "0af7651916cd43dd8448eb211c803102";
    let (owner, entry) = owner_and_entry();
    let missing = format!("{}/docs/shop.Article/70000", workspace_path(WS));
    assert_eq!(entry.ask("GET", &missing, &headers(TRACE, "01"), "").status, 404);
    let spans = wait_for(TRACE, 3);
    let forward = named(&spans, "forward");
    let at_owner = only(&spans, |span| span.parent_span_id == id(forward));
    assert_eq!(attribute(forward, "error.type"), "not_found");
    assert_eq!(attribute(at_owner, "error.type"), "not_found");
    assert!(spans.iter().all(|span| span.status == Status::Unset), "{spans:#?}");
    const LOST: &str = "0af7651916cd43dd8448eb211c803103";
    owner.stop();
    let draw = format!("{}/numbers/order/next", workspace_path(WS));
    let refused = entry.ask("POST", &draw, &headers(LOST, "01"), "");
    // The second node may have become the owner meanwhile.
    if refused.status == 503 {
        let spans = wait_for(LOST, 1);
        let request = only(&spans, |span| span.span_kind == SpanKind::Server);
        assert!(matches!(request.status, Status::Error { .. }), "{spans:#?}");
    }
    entry.stop();
}

/// Commands that wait for the same group: the group is a part of the first of them, and has links
/// to the others.
#[test]
fn a_group_has_links_to_its_commands() {
    let (owner, entry) = owner_and_entry();
    let trace = |at: usize| format!("0af7651916cd43dd8448eb21{at:08}");
    const COMMANDS: usize = 40;
    let mut linked = 0;
    // The machine decides which commands wait at the same time.
    for round in (0..10).map(|round| round * COMMANDS..(round + 1) * COMMANDS) {
        std::thread::scope(|scope| {
            for at in round.clone() {
                let owner = &owner;
                scope.spawn(move || {
                    let (path, headers) = (command_path(WS, "sys.CUD"), headers(&trace(at), "01"));
                    assert_eq!(owner.ask("POST", &path, &headers, ROW).status, 200);
                });
            }
        });
        for at in round {
            let spans = wait_for(&trace(at), 2);
            let command = named(&spans, "command");
            let group = command.links.links[0].span_context.clone();
            let its = wait_for(&group.trace_id().to_string(), 3);
            let its = only(&its, |span| span.span_context == group);
            if its.parent_span_id != id(command) {
                assert!(its.links.iter().any(|link| link.span_context == command.span_context));
                linked += 1;
            }
        }
        if linked > 0 {
            break;
        }
    }
    assert!(linked > 0, "no command was in the group of another one");
    entry.stop();
    owner.stop();
}
