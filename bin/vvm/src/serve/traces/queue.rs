//! The queue between the threads that end spans and the service that exports them.
//!
//! Ending a span never waits: if the queue is full, the span is dropped and counted.

use std::time::Duration;

use metrics::Counter;
use opentelemetry::Context;
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{Span, SpanData, SpanProcessor},
};
use tokio::sync::mpsc::{self, Receiver, Sender};

/// The most spans that wait for their export. Each has about a kilobyte.
const SPANS: usize = 4_096;

/// The outcomes of spans in the metric `vvm_trace_spans_total`.
pub(super) fn counter(outcome: &'static str) -> Counter {
    metrics::counter!("vvm_trace_spans_total", "outcome" => outcome)
}

/// Puts spans that have ended into the queue.
pub(super) struct SpanQueue {
    spans: Sender<SpanData>,
    dropped: Counter,
}

/// Makes a queue and its other end.
pub(super) fn span_queue() -> (SpanQueue, Receiver<SpanData>) {
    let (sender, spans) = mpsc::channel(SPANS);
    (SpanQueue { spans: sender, dropped: counter("dropped") }, spans)
}

impl SpanProcessor for SpanQueue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.spans.try_send(span).is_err() {
            self.dropped.increment(1);
        }
    }

    /// Nothing to do: the service exports everything in the queue when the node stops.
    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

impl std::fmt::Debug for SpanQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpanQueue").field("waiting", &self.spans.max_capacity()).finish()
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{Tracer as _, TracerProvider as _};
    use opentelemetry_sdk::trace::SdkTracerProvider;

    use super::*;

    #[test]
    fn a_full_queue_drops_spans_and_blocks_nobody() {
        let (queue, mut spans) = span_queue();
        let provider = SdkTracerProvider::builder().with_span_processor(queue).build();
        let tracer = provider.tracer("test");
        for _ in 0..SPANS + 100 {
            drop(tracer.start("span"));
        }
        let kept = std::iter::from_fn(|| spans.try_recv().ok()).count();
        assert_eq!(kept, SPANS);
    }
}
