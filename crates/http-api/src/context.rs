//! What all requests to the API share: the node, the settings, and the limits.

use std::{ptr, sync::Arc};

use clock::Instant;
use http_forward::{ForwardMetrics, Forwarder, ForwarderSettings, MostWaiting};
use http_server::{
    ClusterTls, authentication::PortAccess, body::BodyReader, limits::Asker,
    problem::ProblemDetails, request_head::RequestHead, spans::RequestTracer,
};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use vvm::{
    App, Node,
    eventlog::{QName, Table, WsId},
};

use crate::{
    follow::{FollowContext, FollowedLogs},
    limits::Limits,
    route::{ApiOperation, Endpoint},
    rows,
    settings::HttpApiSettings,
};

/// One partition or one peer may hold 1/`PART` of the memory for bodies, and of the requests that
/// connections can have.
const PART: usize = 8;

/// The least number of requests that one partition or one peer may hold.
const LEAST_REQUESTS: usize = 64;

/// Whether a node has peers to forward requests to.
#[derive(Clone, Debug)]
pub(crate) enum ClusterMode {
    Alone,
    /// Without keys for TLS, the peers are on the same machine.
    WithPeers {
        tls: Option<ClusterTls>,
    },
}

/// What all requests to the API share.
#[derive(Debug)]
pub(crate) struct ApiContext {
    pub(crate) node: Node,
    pub(crate) access: PortAccess,
    pub(crate) settings: HttpApiSettings,
    pub(crate) tracer: RequestTracer,
    pub(crate) bodies: BodyReader,
    pub(crate) limits: Arc<Limits>,
    pub(crate) followed: FollowedLogs,
    pub(crate) following: Arc<FollowContext>,
    /// Forwards requests to the other nodes, if the node is in a cluster.
    pub(crate) forwarder: Option<Forwarder>,
}

/// A request for an endpoint of an application that the node has. Its sender may do it.
#[derive(Clone, Copy)]
pub(crate) struct ApiRequest<'r> {
    pub(crate) head: &'r RequestHead,
    pub(crate) app: &'r App,
    pub(crate) ws: WsId,
    pub(crate) endpoint: &'static Endpoint,
    pub(crate) operation: &'r ApiOperation,
    /// The deadline of the request, if it is known already.
    pub(crate) until: Instant,
}

impl<'r> ApiRequest<'r> {
    pub(crate) fn query(&self) -> Option<&'r str> {
        self.head.query()
    }

    /// Finds a table in the schema of the application.
    pub(crate) fn table(&self, name: &QName) -> Result<&'r Table, ProblemDetails> {
        rows::table_of(self.app.application().declarations().schema(), name.as_str())
    }
}

impl ApiContext {
    /// `stop` is cancelled when the node stops.
    pub(crate) fn new(
        node: Node,
        settings: HttpApiSettings,
        mode: ClusterMode,
        stop: CancellationToken,
    ) -> ApiContext {
        let clock = node.clock().clone();
        let threads = Handle::current().metrics().num_workers();
        let limits = Arc::new(Limits::new(&settings, threads, &clock));
        let bodies = Arc::clone(&limits.bodies);
        let bodies = BodyReader::new(bodies, &settings.limits, clock.clone());
        let following = FollowContext { limits: Arc::clone(&limits), stop: stop.clone(), clock };
        // The metrics exist from the beginning, even without a cluster.
        let metrics = ForwardMetrics::default();
        let forwarder = match mode {
            ClusterMode::Alone => None,
            ClusterMode::WithPeers { tls } => {
                let most_waiting = MostWaiting {
                    requests: (settings.limits.connections / PART).max(LEAST_REQUESTS),
                    bytes: settings.bodies_bytes / PART,
                };
                let with = ForwarderSettings {
                    tls,
                    most_waiting,
                    bodies: bodies.clone(),
                    answers: limits.answers.clone(),
                    followers: Arc::clone(&limits.followers),
                    tracer: RequestTracer::new(settings.traced),
                    metrics,
                    stop,
                };
                Some(Forwarder::new(node.clone(), with))
            }
        };
        ApiContext {
            access: PortAccess::new(settings.authenticator.clone(), settings.commands_per_second),
            tracer: RequestTracer::new(settings.traced),
            bodies,
            limits,
            followed: FollowedLogs::default(),
            following: Arc::new(following),
            forwarder,
            node,
            settings,
        }
    }

    /// The index of an application among those of the node.
    pub(crate) fn number_of(&self, app: &App) -> usize {
        let number = self.node.apps().iter().position(|one| ptr::eq(one, app));
        number.unwrap_or_default()
    }

    /// The deadline of a request whose work begins now, for waiting and for its answer.
    pub(crate) fn deadline(&self, request: &ApiRequest<'_>) -> Instant {
        request.until.min(self.node.clock().now() + self.settings.command_time)
    }

    /// The sender of a request whose work begins now. The request waits for at most half of its
    /// time.
    pub(crate) fn half_asker<'h>(&self, head: &'h RequestHead, deadline: Instant) -> Asker<'h> {
        let now = self.node.clock().now();
        head.asker(deadline, now).half(now)
    }
}
