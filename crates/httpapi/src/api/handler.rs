//! The parts that all operations of the API share: the node, the settings, the memory of requests
//! and the turns of reads.

use std::{fmt, ptr, sync::Arc};

use access::Caller;
use clock::Instant;
use hyper::{Method, Request, Response, Uri, Version, header::HeaderMap, http::request::Parts};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use vvm::{
    App, Node,
    eventlog::{QName, Table},
};

use super::{
    settings::{HttpApiSettings, LARGE_EVENTS_BYTES, NEW_EVENTS_BYTES},
    views::Descriptions,
};
use crate::{
    authentication::{PortAccess, TokenEnd, unchecked},
    cluster::{Cluster, ClusterMode, ForwardMetrics, Peers, QuotaLimits},
    cross_origin::PageOrigins,
    follow::{FollowContext, FollowedLogs, FollowerPlaces},
    html_page::HtmlPage,
    memory::MemoryPool,
    places::PlaceTaker,
    problem::ProblemDetails,
    read::{LONG_PAGES, LogReads},
    read_throttle::ReadThrottle,
    request_body::RequestBody,
    request_id::request_id,
    response::Body,
    rows,
    server::{ClientMark, RequestHandler},
    spans::{RequestSpan, RequestTracer},
};

/// One partition or one peer may hold this part of the memory for bodies, and of the requests that
/// connections can have.
const PART: usize = 8;

/// The least number of requests that one partition or one peer may hold.
const LEAST_REQUESTS: usize = 64;

/// Answers the requests to the API.
pub(crate) struct ApiHandler {
    pub(super) node: Node,
    pub(super) access: PortAccess,
    /// The web pages that may use the API.
    pub(super) pages: PageOrigins,
    pub(super) settings: HttpApiSettings,
    pub(super) bodies: MemoryPool,
    pub(super) answers: MemoryPool,
    /// The memory for answers that are too large for their share of `answers`. Small answers do not
    /// wait behind them here.
    pub(super) large_answers: MemoryPool,
    pub(super) log_reads: LogReads,
    pub(super) followers: FollowerPlaces,
    pub(super) followed: FollowedLogs,
    pub(super) following: Arc<FollowContext>,
    pub(super) throttle: ReadThrottle,
    /// The places of pages of lists that are read for long.
    pub(super) long_pages: Semaphore,
    /// The other nodes, if the node is in a cluster.
    pub(super) cluster: Option<Cluster>,
    pub(super) metrics: ForwardMetrics,
    pub(super) descriptions: Descriptions,
    /// The page to try the API.
    pub(super) page: HtmlPage,
    pub(super) tracer: RequestTracer,
}

/// Answers the requests of clients.
pub(super) struct ClientRequests(pub(super) Arc<ApiHandler>);

/// Answers the requests that other nodes forward.
pub(crate) struct PeerRequests(pub(crate) Arc<ApiHandler>);

impl RequestHandler for ClientRequests {
    async fn answer(&self, request: Request<&mut RequestBody>) -> Response<Body> {
        self.0.answer_client(request).await
    }
}

impl RequestHandler for PeerRequests {
    async fn answer(&self, request: Request<&mut RequestBody>) -> Response<Body> {
        self.0.answer_peer(request).await
    }
}

/// The properties of a request besides its body.
pub(super) struct RequestHead {
    pub(super) request: String,
    pub(super) headers: HeaderMap,
    pub(super) uri: Uri,
    pub(super) method: Method,
    pub(super) version: Version,
    /// The client of the connection.
    pub(super) client: Option<ClientMark>,
    /// The sender of the request.
    pub(super) caller: Arc<Caller>,
    /// The end of the token of the sender.
    pub(super) token_end: TokenEnd,
    /// The end of the time of the request, if it is known already.
    pub(super) until: Instant,
    /// Whether another node forwards the request.
    pub(super) is_forwarded: bool,
    /// Whether the answer may be outdated.
    pub(super) is_eventual: bool,
    pub(super) span: RequestSpan,
}

impl RequestHead {
    pub(super) fn path(&self) -> &str {
        self.uri.path()
    }

    pub(super) fn query(&self) -> Option<&str> {
        self.uri.query()
    }
}

impl ApiHandler {
    pub(super) fn new(
        node: Node,
        settings: HttpApiSettings,
        cluster: ClusterMode,
        stop: CancellationToken,
    ) -> ApiHandler {
        let pool = |of, bytes| MemoryPool::new(of, bytes, node.clock().clone());
        let (large, connections) = (settings.answers_bytes / 4, settings.limits.connections);
        // Requests of one principal that wait for memory leave connections to others.
        let for_answers =
            |of, bytes| MemoryPool::for_answers(of, bytes, connections / 4, node.clock().clone());
        // A principal can always send one body.
        let bodies = MemoryPool::with_shares(
            "bodies",
            settings.bodies_bytes,
            settings.limits.body_bytes,
            connections / 4,
            node.clock().clone(),
        );
        let limits = QuotaLimits {
            requests: (connections / PART).max(LEAST_REQUESTS),
            bytes: settings.bodies_bytes / PART,
        };
        let cluster = match cluster {
            ClusterMode::Alone => None,
            ClusterMode::WithPeers { tls } => Some(Cluster::new(tls, limits, node.clock().clone())),
        };
        let (clock, throttle) = (node.clock().clone(), ReadThrottle::new());
        let answers = for_answers("answers", settings.answers_bytes - large);
        let memory = (answers.clone(), pool("new events", NEW_EVENTS_BYTES));
        let log_reads = LogReads::new(throttle.clone(), settings.logs, memory, &clock);
        let followers = HttpApiSettings::most_followers(settings.followers, connections);
        let large_events = pool("large events", LARGE_EVENTS_BYTES);
        let following = FollowContext { clock, reads: log_reads.clone(), large_events, stop };
        ApiHandler {
            bodies,
            answers,
            large_answers: for_answers("large answers", large),
            log_reads,
            followers: FollowerPlaces::new(followers, node.clock().clone()),
            followed: FollowedLogs::default(),
            following: Arc::new(following),
            throttle,
            long_pages: Semaphore::new(LONG_PAGES),
            pages: PageOrigins::new(&settings.page_origins),
            access: PortAccess::new(settings.authenticator.clone(), settings.commands_per_second),
            metrics: ForwardMetrics::new(),
            descriptions: Descriptions::new(),
            page: HtmlPage::new(include_str!("try_page.html")),
            tracer: RequestTracer::new(settings.traced),
            node,
            settings,
            cluster,
        }
    }

    /// The place of an application among those of the node.
    pub(super) fn number_of(&self, app: &App) -> usize {
        let number = self.node.apps().iter().position(|one| ptr::eq(one, app));
        number.unwrap_or_default()
    }

    /// The head of a request. `until` bounds the time of the request.
    pub(super) fn head(&self, head: Parts, until: Instant) -> RequestHead {
        RequestHead {
            request: request_id(&head.headers, self.node.clock()),
            span: self.tracer.arrived(&head.headers),
            client: head.extensions.get().cloned(),
            headers: head.headers,
            uri: head.uri,
            method: head.method,
            version: head.version,
            caller: unchecked(),
            token_end: TokenEnd::of(0, self.node.clock()),
            until,
            is_forwarded: false,
            is_eventual: false,
        }
    }

    /// The deadline of a request that arrives now, for waiting and for its answer.
    pub(super) fn deadline(&self, head: &RequestHead) -> Instant {
        head.until.min(self.node.clock().now() + self.settings.command_time)
    }

    /// The principal of a request, for limits. A forwarded request holds a connection between the
    /// two nodes.
    pub(super) fn taker<'h>(&self, head: &'h RequestHead) -> PlaceTaker<'h> {
        let principal = self.access.principal(&head.caller);
        match head.is_forwarded {
            true => PlaceTaker::between_nodes(principal),
            false => principal.into(),
        }
    }

    /// The other nodes; `None` if the node is not in a cluster.
    pub(crate) fn peers(&self) -> Option<&Peers> {
        self.cluster.as_ref().map(|cluster| &cluster.peers)
    }

    /// Keeps the keys of tokens up to date. Never returns.
    pub(crate) async fn follow_access(&self) {
        self.access.follow().await;
    }

    /// Closes connections to other nodes that nobody uses. Never returns.
    pub(crate) async fn upkeep_peers(&self) {
        match &self.cluster {
            Some(cluster) => cluster.peers.upkeep().await,
            None => std::future::pending().await,
        }
    }
}

impl fmt::Debug for ApiHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiHandler").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Finds the table of a document in the schema of its application.
pub(super) fn table_of<'a>(app: &'a App, name: &QName) -> Result<&'a Table, ProblemDetails> {
    rows::table_of(app.application().schema(), name.as_str())
}
