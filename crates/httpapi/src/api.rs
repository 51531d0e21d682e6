//! The HTTP API: commands, documents and logs.

mod body;
mod commands;
mod headers;
mod reads;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use hyper::{
    Request, Response,
    header::{HeaderMap, HeaderValue},
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use vvm::{
    App, LocalPartition, Node, NotLeader, Service, ServiceError,
    eventlog::{QName, Table, WsId},
};

use self::headers::request_id;
use crate::{
    HttpLimits,
    check::check,
    memory::MemoryPool,
    read_throttle::ReadThrottle,
    request_body::RequestBody,
    response::{Body, NOT_LEADER, ProblemDetails, REQUEST_ID},
    route::{ApiOperation, Route, route},
    rows,
    server::{self, RequestHandler},
};

const JSON: &str = "application/json";

/// The settings of the API.
#[derive(Clone, Copy, Debug)]
pub struct HttpApiSettings {
    /// The address on which the API listens.
    pub listen: SocketAddr,
    /// The limits of connections.
    pub limits: HttpLimits,
    /// The time that a command may take, or the reading of a document or a list. Waiting counts,
    /// too.
    pub command_time: Duration,
    /// The number of bytes of all bodies together that are being received, or that belong to
    /// running commands. No single body may have more.
    pub bodies_bytes: usize,
    /// The number of bytes of all answers together that are being read, or that their clients have
    /// not received. Each answer takes [`READ_BYTES`](crate::READ_BYTES) while it is read. A
    /// quarter is reserved for answers that need more.
    pub answers_bytes: usize,
    /// The number of logs that may be sent at the same time. Each log takes
    /// [`READ_BYTES`](crate::READ_BYTES) of `answers_bytes` until its end. At least half of
    /// `answers_bytes` should be left for documents and lists.
    pub logs: usize,
    /// Whether the API serves only this machine. The API has no authentication, so it then refuses
    /// requests that a page of another site made, and requests to another host name.
    pub only_local: bool,
}

impl HttpApiSettings {
    /// The default settings: 10 s for a command, 256 MiB for bodies, 128 MiB for answers, and 32
    /// logs.
    pub fn new(listen: SocketAddr) -> HttpApiSettings {
        HttpApiSettings {
            listen,
            limits: HttpLimits::default(),
            command_time: Duration::from_secs(10),
            bodies_bytes: 256 << 20,
            answers_bytes: 128 << 20,
            logs: 32,
            only_local: true,
        }
    }
}

/// The HTTP API of a node.
#[derive(Debug)]
pub struct HttpApi {
    settings: HttpApiSettings,
    listener: Option<std::net::TcpListener>,
}

impl HttpApi {
    /// Creates the API. It listens when the node is launched.
    pub fn new(settings: HttpApiSettings) -> HttpApi {
        HttpApi { settings, listener: None }
    }
}

#[async_trait]
impl Service for HttpApi {
    fn name(&self) -> &'static str {
        "api"
    }

    async fn bind(&mut self) -> Result<(), ServiceError> {
        self.listener = Some(server::bind(self.settings.listen)?);
        Ok(())
    }

    async fn run(self: Box<Self>, node: Node, stop: CancellationToken) -> Result<(), ServiceError> {
        let HttpApi { settings, listener } = *self;
        let listener = listener.ok_or("the API was not bound to its port")?;
        let clock = node.clock().clone();
        let requests = ApiHandler::new(node, settings);
        server::serve("api", listener, requests, settings.limits, &clock, &stop).await
    }
}

struct ApiHandler {
    node: Node,
    settings: HttpApiSettings,
    bodies: MemoryPool,
    answers: MemoryPool,
    /// The memory for answers that are too large for their share of `answers`. Small answers do not
    /// wait behind them here.
    large_answers: MemoryPool,
    logs: Arc<Semaphore>,
    throttle: ReadThrottle,
}

/// The properties of a request besides its body.
struct RequestHead {
    request: String,
    headers: HeaderMap,
    path: String,
    query: Option<String>,
    method: hyper::Method,
    version: hyper::Version,
}

impl RequestHandler for ApiHandler {
    async fn answer(&self, request: Request<&mut RequestBody>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let checked = check(&head, self.settings.only_local);
        let request = request_id(&head.headers, self.node.clock());
        let head = RequestHead {
            request,
            headers: head.headers,
            path: head.uri.path().to_owned(),
            query: head.uri.query().map(str::to_owned),
            method: head.method,
            version: head.version,
        };
        let clock = self.node.clock();
        let start = clock.now();
        let (kind, answered) = match checked.and_then(|()| route(&head.method, &head.path)) {
            Ok(route) => (route.operation.kind(), self.dispatch(&head, route, body).await),
            Err(problem) => ("none", Err(problem)),
        };
        let mut response = answered.unwrap_or_else(|problem| problem.into_response(&head.request));
        if let Ok(id) = HeaderValue::from_str(&head.request) {
            response.headers_mut().insert(REQUEST_ID, id);
        }
        let status = response.status().as_u16().to_string();
        metrics::histogram!("httpapi_request_seconds", "kind" => kind, "status" => status)
            .record(clock.now() - start);
        response
    }
}

impl ApiHandler {
    fn new(node: Node, settings: HttpApiSettings) -> ApiHandler {
        let pool = |of, bytes| MemoryPool::new(of, bytes, node.clock().clone());
        let large = settings.answers_bytes / 4;
        let bodies = pool("bodies", settings.bodies_bytes);
        let answers = pool("answers", settings.answers_bytes - large);
        let large_answers = pool("large answers", large);
        let logs = Arc::new(Semaphore::new(settings.logs.min(Semaphore::MAX_PERMITS)));
        ApiHandler {
            node,
            settings,
            bodies,
            answers,
            large_answers,
            logs,
            throttle: ReadThrottle::new(),
        }
    }

    async fn dispatch(
        &self,
        head: &RequestHead,
        Route { owner, app, ws, operation }: Route<'_>,
        body: &mut RequestBody,
    ) -> Result<Response<Body>, ProblemDetails> {
        let app = self.node.app(owner, app).ok_or_else(|| {
            ProblemDetails::not_found(format!("this node has no application {owner}/{app}"))
        })?;
        operation.check_query(head.query.as_deref())?;
        match operation {
            ApiOperation::Command(name) => self.run_command(head, app, ws, name, body).await,
            ApiOperation::CreateDoc(name) => self.create_doc(head, app, ws, &name, body).await,
            ApiOperation::ReadDoc(name, id) => {
                self.read_doc(app, ws, table_of(app, &name)?, id).await
            }
            ApiOperation::ChangeDoc(name, id) => {
                self.change_doc(head, app, ws, (&name, id), body).await
            }
            ApiOperation::DeactivateDoc(name, id) => {
                self.deactivate_doc(head, app, ws, (&name, id)).await
            }
            ApiOperation::ListDocs(name) => {
                self.list_docs(head, app, ws, table_of(app, &name)?).await
            }
            ApiOperation::Log => self.log(head, app, ws).await,
        }
    }

    /// The partition of a workspace if this node leads it; otherwise a problem with the leader.
    async fn at<'a>(&self, app: &'a App, ws: WsId) -> Result<LocalPartition<'a>, ProblemDetails> {
        match app.local_partition(ws) {
            Ok(partition) => Ok(partition),
            Err(why) => Err(self.not_leader(app, ws, why).await),
        }
    }

    /// Checks that a client may be given the rows that were read.
    async fn check_leadership(
        &self,
        app: &App,
        ws: WsId,
        partition: &LocalPartition<'_>,
    ) -> Result<(), ProblemDetails> {
        match partition.may_answer() {
            Ok(()) => Ok(()),
            Err(why) => Err(self.not_leader(app, ws, why).await),
        }
    }

    async fn not_leader(&self, app: &App, ws: WsId, why: NotLeader) -> ProblemDetails {
        self.with_leader(app, ws, ProblemDetails::unavailable(NOT_LEADER, why.to_string())).await
    }

    /// Adds the address of the leader to a problem, if the leader is known.
    async fn with_leader(&self, app: &App, ws: WsId, problem: ProblemDetails) -> ProblemDetails {
        match self.node.leader_of(app.partition_of(ws)).await {
            Some(leader) => problem.with("leader", leader.to_string()),
            None => problem,
        }
    }
}

/// Finds the table of a document in the schema of its application.
fn table_of<'a>(app: &'a App, name: &QName) -> Result<&'a Table, ProblemDetails> {
    rows::table_of(app.application().schema(), name.as_str())
}
