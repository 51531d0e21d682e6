//! The service that sends spans to the collector: batches by OTLP over HTTP, in protobuf.
//!
//! A batch that the collector does not take is dropped and counted. It is not sent again: spans
//! that are kept would take memory, and the next batch waits. While the collector is away, each
//! batch is one attempt to connect.

use std::{mem, time::Duration};

use async_trait::async_trait;
use clock::Clock;
use ctl::client::{NodeClient, NodeRequest, NodeTarget};
use hyper::{
    Method,
    header::{CONTENT_TYPE, HeaderValue},
};
use metrics::Counter;
use opentelemetry_proto::{
    tonic::collector::trace::v1::ExportTraceServiceRequest,
    transform::{
        common::tonic::ResourceAttributesWithSchema,
        trace::tonic::group_spans_by_resource_and_scope,
    },
};
use opentelemetry_sdk::trace::SpanData;
use prost::Message as _;
use tokio::sync::mpsc::Receiver;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use vvm::{Node, Service, ServiceError};

use super::queue::counter;

/// The most spans in a request.
const BATCH: usize = 512;

/// How long spans are collected for a batch.
const COLLECT: Duration = Duration::from_secs(1);

/// The collector must take a batch within this time.
const SEND_WITHIN: Duration = Duration::from_secs(5);

/// The path at a collector that takes spans.
const PATH: &str = "/v1/traces";

/// Sends spans to a collector.
pub(crate) struct SpanExport {
    collector: NodeTarget,
    spans: Receiver<SpanData>,
    resource: ResourceAttributesWithSchema,
    /// The time for the spans that are left when the node stops.
    flush_within: Duration,
    exported: Counter,
    failed: Counter,
    /// Whether the last batch was not taken.
    is_failing: bool,
}

impl SpanExport {
    pub(super) fn new(
        collector: NodeTarget,
        spans: Receiver<SpanData>,
        resource: ResourceAttributesWithSchema,
        flush_within: Duration,
    ) -> SpanExport {
        let (exported, failed, is_failing) = (counter("exported"), counter("failed"), false);
        SpanExport { collector, spans, resource, flush_within, exported, failed, is_failing }
    }

    /// Exports spans until the node stops and none is left.
    async fn export_all(&mut self, clock: &Clock, stop: &CancellationToken) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            // Spans that were received stay in the batch if the wait is cut.
            stop.run_until_cancelled(fill(&mut self.spans, &mut batch, clock)).await;
            while batch.len() < BATCH
                && let Ok(span) = self.spans.try_recv()
            {
                batch.push(span);
            }
            if batch.is_empty() {
                return;
            }
            self.export(mem::take(&mut batch), clock).await;
        }
    }

    async fn export(&mut self, batch: Vec<SpanData>, clock: &Clock) {
        let spans = batch.len() as u64;
        let mut unsent = UnsentSpans { spans, failed: &self.failed };
        let resource_spans = group_spans_by_resource_and_scope(batch, &self.resource);
        let body = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
        let sent = post(&self.collector, body, clock).await;
        let was_failing = mem::replace(&mut self.is_failing, sent.is_err());
        match sent {
            Ok(()) => {
                unsent.spans = 0;
                self.exported.increment(spans);
                if was_failing {
                    info!(collector = %self.collector, "traces exported again");
                }
            }
            // One line for each time that the collector goes away.
            Err(error) if !was_failing => {
                let collector = &self.collector;
                warn!(%collector, error, "traces not exported: spans are dropped");
            }
            Err(_) => {}
        }
    }
}

/// Spans that count as failed, unless they are sent. The time of a stop can end while they are
/// being sent.
struct UnsentSpans<'c> {
    spans: u64,
    failed: &'c Counter,
}

impl Drop for UnsentSpans<'_> {
    fn drop(&mut self) {
        self.failed.increment(self.spans);
    }
}

/// Receives spans until the batch is full, or until no more come for it.
async fn fill(spans: &mut Receiver<SpanData>, batch: &mut Vec<SpanData>, clock: &Clock) {
    spans.recv_many(batch, BATCH).await;
    let until = clock.now() + COLLECT;
    while batch.len() < BATCH {
        let room = BATCH - batch.len();
        match clock.timeout_at(until, spans.recv_many(batch, room)).await {
            Ok(received) if received > 0 => {}
            _ => return,
        }
    }
}

async fn post(collector: &NodeTarget, body: Vec<u8>, clock: &Clock) -> Result<(), String> {
    let headers = [(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"))];
    let (method, body) = (Method::POST, body.into());
    let request = NodeRequest { method, path: PATH, headers: &headers, body };
    match NodeClient::open(clock, collector, request, SEND_WITHIN).await? {
        Err(answer) => Err(format!("the collector answered {}", answer.status)),
        // The body of the answer is for people.
        Ok(_) => Ok(()),
    }
}

impl std::fmt::Debug for SpanExport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpanExport").finish_non_exhaustive()
    }
}

#[async_trait]
impl Service for SpanExport {
    fn name(&self) -> &'static str {
        "traces"
    }

    async fn bind(&mut self) -> Result<(), ServiceError> {
        Ok(())
    }

    async fn run(
        mut self: Box<Self>,
        node: Node,
        stop: CancellationToken,
    ) -> Result<(), ServiceError> {
        let clock = node.clock().clone();
        let flush_within = self.flush_within;
        let late = async {
            stop.cancelled().await;
            clock.sleep(flush_within).await;
        };
        tokio::select! {
            () = self.export_all(&clock, &stop) => {}
            () = late => warn!("the collector did not take the last spans in time"),
        }
        self.failed.increment(self.spans.len() as u64);
        Ok(())
    }
}
