//! The spans of requests, for hosts that export traces by OpenTelemetry.
//!
//! The span of a request continues the trace that its `traceparent` names. A forwarded request
//! names the span of its forwarding, so the span at the owner is a child of that span. A span has
//! no part of a body, a query, a token or a key.

use std::net::SocketAddr;

use hyper::{
    HeaderMap, Method, StatusCode,
    header::{HeaderName, HeaderValue},
};
use opentelemetry::{
    Context, KeyValue, SpanId, TraceFlags, TraceId,
    global::{self, BoxedSpan, BoxedTracer},
    trace::{
        Span as _, SpanContext, SpanKind, Status, TraceContextExt as _, TraceState, Tracer as _,
    },
};

/// The header with the span of the sender (W3C Trace Context).
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// The header with what vendors add to it.
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The longest `tracestate` that is passed on. A longer one may be dropped (W3C Trace Context,
/// section 3.3.1.5), and each span that waits for its export has a copy.
const LONGEST_STATE: usize = 512;

/// The longest name of an application in a span. No application has a longer one.
const LONGEST_APP: usize = 200;

/// Makes the spans of requests, if the host exports traces.
#[derive(Debug)]
pub struct RequestTracer(Option<BoxedTracer>);

impl RequestTracer {
    /// The tracer of the provider that the host has installed; without `is_on` no request has a
    /// span.
    pub fn new(is_on: bool) -> RequestTracer {
        RequestTracer(is_on.then(|| global::tracer("vvm")))
    }

    /// Begins the span of a request that arrives.
    pub fn arrived(&self, headers: &HeaderMap) -> RequestSpan {
        let Some(tracer) = &self.0 else { return RequestSpan(None) };
        let builder = tracer.span_builder("request").with_kind(SpanKind::Server);
        // A sampler treats an invalid parent as one that is not sampled.
        let parent = sender(headers).map(|sender| Context::new().with_remote_span_context(sender));
        let parent = parent.unwrap_or_default();
        RequestSpan(Some(tracer.build_with_context(builder, &parent)))
    }

    /// Begins the span of a try at another node. It is a part of the span of the request.
    pub fn forwarded(&self, request: &RequestSpan, to: SocketAddr) -> RequestSpan {
        let (Some(tracer), Some(request)) = (&self.0, &request.0) else { return RequestSpan(None) };
        let parent = Context::new().with_remote_span_context(request.span_context().clone());
        let builder = tracer.span_builder("forward").with_kind(SpanKind::Client);
        let builder = match request.is_recording() {
            true => builder.with_attributes([KeyValue::new("server.address", to.to_string())]),
            false => builder,
        };
        RequestSpan(Some(tracer.build_with_context(builder, &parent)))
    }
}

/// The span of a request, or of a try at another node. It ends when it is dropped.
#[derive(Debug)]
pub struct RequestSpan(Option<BoxedSpan>);

impl RequestSpan {
    /// The place of the span in its trace, for spans below it.
    pub fn context(&self) -> SpanContext {
        self.0.as_ref().map_or(SpanContext::NONE, |span| span.span_context().clone())
    }

    /// The span, if it is recorded.
    fn recorded(&mut self) -> Option<&mut BoxedSpan> {
        self.0.as_mut().filter(|span| span.is_recording())
    }

    /// Names the request and its resource.
    pub fn set_request(
        &mut self,
        method: &Method,
        request: &str,
        kind: &'static str,
        owner: &str,
        app: &str,
        workspace: Option<u64>,
    ) {
        let Some(span) = self.recorded() else { return };
        span.update_name(format!("{method} {kind}"));
        span.set_attributes([
            KeyValue::new("http.request.method", method.to_string()),
            KeyValue::new("vvm.kind", kind),
            KeyValue::new("vvm.request_id", request.to_owned()),
        ]);
        // Anybody may send any name, and each span that waits for its export has a copy.
        if owner.len() + app.len() <= LONGEST_APP {
            span.set_attribute(KeyValue::new("vvm.app", format!("{owner}/{app}")));
        }
        if let Some(ws) = workspace {
            // The type of attributes has no numbers above that of i64.
            span.set_attribute(KeyValue::new("vvm.workspace", ws.to_string()));
        }
    }

    /// Notes the answer. A fault of the node or of its storage is an error of the span; a refusal
    /// is not.
    pub fn answered(&mut self, status: StatusCode, code: Option<&str>) {
        let Some(span) = self.recorded() else { return };
        let number = i64::from(status.as_u16());
        span.set_attribute(KeyValue::new("http.response.status_code", number));
        if let Some(code) = code {
            span.set_attribute(KeyValue::new("error.type", code.to_owned()));
        }
        if status.is_server_error() {
            span.set_status(Status::error(code.unwrap_or_default().to_owned()));
        }
    }

    /// Notes that no answer came, with a short word for the reason.
    pub fn failed(&mut self, why: &'static str) {
        let Some(span) = self.recorded() else { return };
        span.set_attribute(KeyValue::new("error.type", why));
        span.set_status(Status::error(why));
    }

    /// Makes the span the parent of that of the receiver of a request. Without a span the headers
    /// stay as the client sent them.
    pub fn write(&self, headers: &mut HeaderMap) {
        let context = match &self.0 {
            Some(span) if span.span_context().is_valid() => span.span_context(),
            _ => return,
        };
        let (trace, span, flags) = (context.trace_id(), context.span_id(), context.trace_flags());
        if let Ok(parent) = HeaderValue::try_from(format!("00-{trace}-{span}-{flags:02x}")) {
            headers.insert(TRACEPARENT, parent);
        }
        headers.remove(TRACESTATE);
        let state = context.trace_state().header();
        if let Some(state) = HeaderValue::try_from(state).ok().filter(|state| !state.is_empty()) {
            headers.insert(TRACESTATE, state);
        }
    }
}

/// The span of the sender of a request (W3C Trace Context, section 3.2); `None` if the headers name
/// none.
fn sender(headers: &HeaderMap) -> Option<SpanContext> {
    let mut parents = headers.get_all(TRACEPARENT).iter();
    let (parent, None) = (parents.next()?.to_str().ok()?, parents.next()) else { return None };
    let mut parts = parent.split('-');
    let mut hex = |digits: usize| {
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        parts.next().filter(|part| part.len() == digits && part.bytes().all(is_hex))
    };
    let (version, trace, span, flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
    // A later version may have more parts.
    if version == "ff" || (version == "00" && parts.next().is_some()) {
        return None;
    }
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED;
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    let sender = SpanContext::new(trace, span, flags, true, state(headers));
    sender.is_valid().then_some(sender)
}

/// The state of the trace; nothing if it is not valid or too long.
fn state(headers: &HeaderMap) -> TraceState {
    let texts = headers.get_all(TRACESTATE).iter().map(|value| value.to_str().ok());
    let text = texts.collect::<Option<Vec<_>>>().map(|texts| texts.join(","));
    let text = text.filter(|text| text.len() <= LONGEST_STATE);
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    fn headers(parent: &str, state: &str) -> HeaderMap {
        let value = |text: &str| HeaderValue::from_str(text).unwrap();
        HeaderMap::from_iter([(TRACEPARENT, value(parent)), (TRACESTATE, value(state))])
    }

    #[test]
    fn the_span_of_a_sender_is_read() {
        for (flags, is_sampled) in [("00", false), ("01", true), ("02", false), ("ff", true)] {
            let found = sender(&headers(&format!("00-{TRACE}-{SPAN}-{flags}"), "a=1,b=2")).unwrap();
            assert_eq!(found.trace_id().to_string(), TRACE);
            assert_eq!(found.span_id().to_string(), SPAN);
            assert_eq!(found.is_sampled(), is_sampled, "{flags}");
            assert!(found.is_remote());
            assert_eq!(found.trace_state().header(), "a=1,b=2");
        }
        assert!(sender(&headers(&format!("01-{TRACE}-{SPAN}-01-more"), "")).is_some());
    }

    #[test]
    fn a_sender_that_is_not_valid_counts_as_none() {
        let zeros = |digits| "0".repeat(digits);
        for parent in [
            String::new(),
            "00".to_owned(),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-1"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{}-{SPAN}-01", zeros(32)),
            format!("00-{TRACE}-{}-01", zeros(16)),
            format!("00-{TRACE}-+{}-01", &SPAN[1..]),
            format!("00-{TRACE}a-{SPAN}-01"),
        ] {
            assert_eq!(sender(&headers(&parent, "")), None, "{parent}");
        }
        let mut twice = headers(&format!("00-{TRACE}-{SPAN}-01"), "");
        twice.append(TRACEPARENT, HeaderValue::from_static("00"));
        assert_eq!(sender(&twice), None);
    }

    #[test]
    fn a_state_that_is_too_long_or_not_valid_is_left_out() {
        let long = format!("a={}", "x".repeat(LONGEST_STATE));
        for state in [long.as_str(), "a", "a=1,b"] {
            let found = sender(&headers(&format!("00-{TRACE}-{SPAN}-01"), state)).unwrap();
            assert_eq!(found.trace_state().header(), "", "{state}");
        }
    }
}
