//! What forwarding needs: the other nodes, the partitions whose requests wait, and the limits that
//! forwarded requests share with all others.

use std::sync::Arc;

use clock::Instant;
use http_server::{
    ClusterTls,
    body::BodyReader,
    limits::{AnswerMemory, Asker, Limit},
    request_head::RequestHead,
    spans::RequestTracer,
};
use tokio_util::sync::CancellationToken;
use vvm::{App, Node, eventlog::WsId};

use crate::{
    limits::{AllPartitions, MostWaiting},
    metrics::ForwardMetrics,
    peers::Peers,
};

/// Does the requests of a node of a cluster: on this node, or at the owner of their partition.
#[derive(Debug)]
pub struct Forwarder {
    pub(crate) node: Node,
    pub(crate) peers: Arc<Peers>,
    pub(crate) partitions: AllPartitions,
    pub(crate) bodies: BodyReader,
    pub(crate) answers: AnswerMemory,
    pub(crate) followers: Arc<Limit>,
    pub(crate) metrics: ForwardMetrics,
    pub(crate) tracer: RequestTracer,
    /// Cancelled when the node stops.
    pub(crate) stop: CancellationToken,
}

/// What a [`Forwarder`] shares with the API.
#[derive(Debug)]
pub struct ForwarderSettings {
    /// Mutual TLS. Without it the peers are on this machine.
    pub tls: Option<ClusterTls>,
    /// The most that may wait for one partition.
    pub most_waiting: MostWaiting,
    /// Receives the bodies of requests.
    pub bodies: BodyReader,
    /// The memory for answers.
    pub answers: AnswerMemory,
    /// The clients that follow logs through this node.
    pub followers: Arc<Limit>,
    /// Makes the spans of tries at other nodes.
    pub tracer: RequestTracer,
    /// The metrics of forwarding.
    pub metrics: ForwardMetrics,
    /// Cancelled when the node stops.
    pub stop: CancellationToken,
}

/// A request that any node may do.
#[derive(Clone, Copy, Debug)]
pub struct ForwardRequest<'r> {
    /// The head of the request.
    pub head: &'r RequestHead,
    /// The application of the request.
    pub app: &'r App,
    /// The index of the application among those of the node.
    pub app_number: usize,
    /// The workspace that stands for the partition.
    pub ws: WsId,
    /// What the request needs on its way.
    pub kind: ForwardKind,
    /// The deadline of the request.
    pub until: Instant,
}

/// What a request needs on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardKind {
    /// It reads, and its answer has an end.
    Read,
    /// It reads a log.
    Log {
        /// Whether the answer goes on with new events.
        is_followed: bool,
    },
    /// It changes something.
    Write {
        /// As many bytes as the owner can answer. A write is done before its answer arrives here,
        /// so no limit of this node may refuse the answer.
        most_answer_bytes: usize,
        /// The memory for the answer, if this node takes it before the owner does the request.
        reserved_bytes: Option<usize>,
    },
}

impl ForwardRequest<'_> {
    pub(crate) fn partition(&self) -> u16 {
        self.app.partition_of(self.ws)
    }

    /// The sender of the request, for the limits on the way. Only a read counts against the share
    /// of its principal there, and leaves half of its time to its work.
    pub(crate) fn asker_on_way(&self, now: Instant) -> Asker<'_> {
        let principal = self.head.principal().filter(|_| self.kind == ForwardKind::Read);
        Asker::new(principal, self.until).half_for_share(now)
    }

    /// Whether the request changes nothing.
    pub(crate) fn is_read(&self) -> bool {
        !matches!(self.kind, ForwardKind::Write { .. })
    }
}

impl Forwarder {
    /// A forwarder without a request.
    pub fn new(node: Node, settings: ForwarderSettings) -> Forwarder {
        let ForwarderSettings {
            tls,
            most_waiting,
            bodies,
            answers,
            followers,
            tracer,
            metrics,
            stop,
        } = settings;
        let clock = node.clock().clone();
        Forwarder {
            peers: Arc::new(Peers::new(tls, most_waiting, clock.clone())),
            partitions: AllPartitions::new(most_waiting, clock),
            node,
            bodies,
            answers,
            followers,
            metrics,
            tracer,
            stop,
        }
    }

    /// The other nodes.
    pub fn peers(&self) -> &Arc<Peers> {
        &self.peers
    }
}
