//! The trace of a request that one node forwards to another.

use std::collections::BTreeSet;

use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind};
use shop::http_client::{command_path, request};

use crate::{collector::Collector, config, fixture::StorageFixture, node::free};

/// A collector gets one trace from two nodes. The spans of the owner are below the forwarding.
pub(crate) fn traced(fixture: &StorageFixture) {
    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const CLIENT: &str = "b7ad6b7169203331";
    let collector = Collector::start();
    let start = |name| {
        let traces = format!(
            "listen = \"{}\"\n[traces]\nendpoint = \"http://{}\"\nsample_ratio = 0.0\n",
            free(),
            collector.address
        );
        fixture.start(name, &(config(fixture, &fixture.storage) + &traces))
    };
    let owner = start("owner").ready();
    owner.create_workspace(1);
    let entry = start("entry").ready();
    let parent = format!("00-{TRACE}-{CLIENT}-01");
    let row = r#"{"rows":[{"id":1,"table":"shop.Article"}]}"#;
    let headers = [("traceparent", &*parent)];
    let (status, answer) = request(entry.api, "POST", &command_path(1, "sys.CUD"), &headers, row);
    assert_eq!(status, 200, "{answer}");
    let spans = collector.wait_for(|spans| spans.len() >= 5);
    assert_eq!(spans.len(), 5, "{spans:#?}");
    let below = |parent: &[u8], name: &str, kind: SpanKind| -> Span {
        let is_it = |span: &&Span| {
            span.parent_span_id == parent && span.name == name && span.kind == kind as i32
        };
        let found = spans.iter().find(is_it);
        found.unwrap_or_else(|| panic!("no {name} below {parent:x?}: {spans:#?}")).clone()
    };
    let client = u64::from_str_radix(CLIENT, 16).unwrap().to_be_bytes();
    let at_entry = below(&client, "POST command", SpanKind::Server);
    let forward = below(&at_entry.span_id, "forward", SpanKind::Client);
    let at_owner = below(&forward.span_id, "POST command", SpanKind::Server);
    let command = below(&at_owner.span_id, "command", SpanKind::Internal);
    below(&command.span_id, "group", SpanKind::Internal);
    let got = collector.got.lock().unwrap();
    let names = got.resources.iter().filter(|(key, _)| key == "service.instance.id");
    let names: BTreeSet<_> = names.map(|(_, name)| name.clone()).collect();
    assert_eq!(names, [owner.api, entry.api].map(|api| api.to_string()).into());
    drop(got);
    entry.stop();
    owner.stop();
}
