//! What forwarding needs: the other nodes, the partitions whose requests wait, and the limits that
//! forwarded requests share with all others.

use std::{fmt, sync::Arc};

use clock::Instant;
use tokio_util::sync::CancellationToken;
use vvm::{App, Node, eventlog::WsId};

use super::{metrics::ForwardMetrics, parking::Parking, peers::Peers};
use crate::{
    body::BodyReader,
    limits::{AnswerMemory, FollowerPlaces, QuotaLimits},
    request_head::RequestHead,
    spans::RequestTracer,
    tls::ClusterTls,
};

/// Does the requests of a node of a cluster: on this node, or at the owner of their partition.
pub(crate) struct Forwarder {
    pub(super) node: Node,
    pub(super) peers: Arc<Peers>,
    pub(super) parking: Parking,
    pub(super) bodies: BodyReader,
    pub(super) answers: AnswerMemory,
    pub(super) followers: Arc<FollowerPlaces>,
    pub(super) metrics: ForwardMetrics,
    pub(super) tracer: RequestTracer,
    /// Cancelled when the node stops.
    pub(super) stop: CancellationToken,
}

/// What a [`Forwarder`] shares with the API.
pub(crate) struct ForwarderSettings {
    /// Mutual TLS. Without it the peers are on this machine.
    pub(crate) tls: Option<ClusterTls>,
    /// What the requests of one partition may hold. A peer may hold twice as much, so that one
    /// partition that is slow leaves room for the others.
    pub(crate) limits: QuotaLimits,
    pub(crate) bodies: BodyReader,
    pub(crate) answers: AnswerMemory,
    pub(crate) followers: Arc<FollowerPlaces>,
    pub(crate) tracer: RequestTracer,
    /// Cancelled when the node stops.
    pub(crate) stop: CancellationToken,
}

/// A request that any node may do.
#[derive(Clone, Copy)]
pub(crate) struct ForwardRequest<'r> {
    pub(crate) head: &'r RequestHead,
    pub(crate) app: &'r App,
    /// The place of the application among those of the node.
    pub(crate) app_number: usize,
    pub(crate) ws: WsId,
    pub(crate) kind: ForwardKind,
    /// The end of the time of the request.
    pub(crate) until: Instant,
}

/// What a request needs on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForwardKind {
    Read,
    Log {
        is_followed: bool,
    },
    Write {
        /// As many bytes as the owner can answer. A write is done before its answer arrives here,
        /// so no limit of this node may refuse the answer.
        most_answer_bytes: usize,
        /// The memory for the answer, if this node takes it before the owner does the request.
        reserved_bytes: Option<usize>,
    },
}

impl ForwardRequest<'_> {
    pub(super) fn partition(&self) -> u16 {
        self.app.partition_of(self.ws)
    }

    /// Whether the request changes nothing.
    pub(super) fn is_read(&self) -> bool {
        !matches!(self.kind, ForwardKind::Write { .. })
    }
}

impl Forwarder {
    pub(crate) fn new(node: Node, settings: ForwarderSettings) -> Forwarder {
        let ForwarderSettings { tls, limits, bodies, answers, followers, tracer, stop } = settings;
        let QuotaLimits { requests, bytes } = limits;
        let of_peer = QuotaLimits { requests: 2 * requests, bytes: 2 * bytes };
        let clock = node.clock().clone();
        Forwarder {
            peers: Arc::new(Peers::new(tls, of_peer, clock.clone())),
            parking: Parking::new(limits, clock),
            node,
            bodies,
            answers,
            followers,
            metrics: ForwardMetrics::new(),
            tracer,
            stop,
        }
    }

    /// The other nodes.
    pub(crate) fn peers(&self) -> &Arc<Peers> {
        &self.peers
    }
}

impl fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forwarder").field("peers", &self.peers).finish_non_exhaustive()
    }
}
