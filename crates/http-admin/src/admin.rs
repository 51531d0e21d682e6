//! The admin endpoint: the status of the node, and the actions of an operator.

use std::{fmt, net::SocketAddr, sync::Arc};

use access::Caller;
use async_trait::async_trait;
use bytes::Bytes;
use http_server::{
    Authenticator, HttpLimits, ServerTls,
    authentication::{PortAccess, TokenEnd, check_operator},
    check::check,
    html_page::HtmlPage,
    problem::{Answer, ProblemDetails, UNKNOWN_PATH_PORT},
    query::{check_query, parameters},
    request_body::RequestBody,
    response::{Body, bytes_response, json_response, keep_out_of_caches},
    server::{ClientKind, RequestHandler, Server, bind},
    web_pages::check_action,
};
use hyper::{Request, Response, StatusCode, http::request::Parts};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use vvm::{Node, Service, ServiceError, istorage::StorageDriver};

use crate::{
    audit::{ActionLine, note_refused},
    backup::Backups,
    cluster,
    events::EventStreams,
    paths::{Action, AdminPath, PATHS, Shown},
    repair, sequences,
    shared_renderer::{MetricsRenderer, SharedRenderer},
    storage_views::StorageViews,
};

/// The settings of the admin endpoint.
#[derive(Clone)]
pub struct AdminSettings {
    /// The address on which the endpoint listens.
    pub listen: SocketAddr,
    /// TLS of the port. Without it the endpoint speaks plain HTTP.
    pub tls: Option<ServerTls>,
    /// The limits of connections.
    pub limits: HttpLimits,
    /// The metrics of the process.
    pub metrics: MetricsRenderer,
    /// The version of the program.
    pub version: &'static str,
    /// Whether the endpoint serves only this machine, as for the API. If other paths need a token,
    /// an endpoint on loopback serves the paths that need none only to this machine in any case.
    pub only_local: bool,
    /// Finds the sender of a request. Without it every client may do everything.
    pub authenticator: Option<Arc<dyn Authenticator>>,
    /// The storage of the node, for backups and views. Without it the endpoint has none.
    pub storage: Option<Arc<dyn StorageDriver>>,
}

impl AdminSettings {
    /// The default settings: the default limits, only this machine is served, and no backups.
    pub fn new(
        listen: SocketAddr,
        metrics: MetricsRenderer,
        version: &'static str,
    ) -> AdminSettings {
        let limits = HttpLimits::default();
        AdminSettings {
            listen,
            tls: None,
            limits,
            metrics,
            version,
            only_local: true,
            authenticator: None,
            storage: None,
        }
    }
}

impl fmt::Debug for AdminSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminSettings").field("listen", &self.listen).finish_non_exhaustive()
    }
}

/// The admin endpoint of a node.
#[derive(Debug)]
pub struct AdminEndpoint {
    settings: AdminSettings,
    listener: Option<std::net::TcpListener>,
}

impl AdminEndpoint {
    /// Creates the endpoint. It listens when the node is launched.
    pub fn new(settings: AdminSettings) -> AdminEndpoint {
        AdminEndpoint { settings, listener: None }
    }
}

#[async_trait]
impl Service for AdminEndpoint {
    fn name(&self) -> &'static str {
        "admin"
    }

    async fn bind(&mut self) -> Result<(), ServiceError> {
        self.listener = Some(bind(self.settings.listen)?);
        Ok(())
    }

    async fn run(self: Box<Self>, node: Node, stop: CancellationToken) -> Result<(), ServiceError> {
        let AdminEndpoint { settings, listener } = *self;
        let listener = listener.ok_or("the admin endpoint was not bound to its port")?;
        let (clock, limits) = (node.clock().clone(), settings.limits);
        let renderer = SharedRenderer::new(settings.metrics, clock.clone());
        let AdminSettings { version, only_local, tls, authenticator, storage, .. } = settings;
        let open_only_local =
            authenticator.is_some() && settings.listen.ip().to_canonical().is_loopback();
        let access = PortAccess::new(authenticator, 0);
        let page = HtmlPage::new(include_str!("live_page.html"));
        let (page, streams) = (page, EventStreams::new(clock.clone(), stop.clone()));
        let backups = Backups::new(storage.clone(), clock.clone(), stop.clone());
        let storage_views = StorageViews::new(storage, clock.clone(), stop.clone());
        let requests = AdminHandler {
            node,
            renderer,
            page,
            streams,
            backups,
            storage_views,
            version,
            only_local,
            open_only_local,
            access: access.clone(),
        };
        let server =
            Server { name: "admin", limits, clients: ClientKind::Public(tls), clock, stop };
        tokio::select! {
            served = server.serve(listener, requests) => Ok(served?),
            () = access.follow() => Ok(()),
        }
    }
}

struct AdminHandler {
    node: Node,
    renderer: SharedRenderer,
    page: HtmlPage,
    streams: EventStreams,
    backups: Backups,
    storage_views: StorageViews,
    version: &'static str,
    only_local: bool,
    /// Whether the open paths serve only this machine. A page whose host the DNS resolves to this
    /// machine (DNS rebinding) has no token, but could read what needs none.
    open_only_local: bool,
    access: PortAccess,
}

impl RequestHandler for AdminHandler {
    async fn answer(&self, request: Request<&mut RequestBody>) -> Response<Body> {
        let (head, _) = request.into_parts();
        let answered = self.dispatch(&head).await;
        let mut response = answered.unwrap_or_else(ProblemDetails::into_response);
        keep_out_of_caches(response.headers_mut());
        response
    }
}

/// The sender of a request that needs an operator and was refused.
struct RefusedOperator {
    /// The sender; `None` if the sender is not known.
    caller: Option<Arc<Caller>>,
    why: ProblemDetails,
}

impl AdminHandler {
    async fn dispatch(&self, head: &Parts) -> Answer {
        let (text, query) = (head.uri.path(), head.uri.query());
        let path = AdminPath::of(text);
        // The page itself may come through a proxy by any name.
        let has_open_data = path.is_some_and(AdminPath::has_open_data);
        check(head, self.only_local || (has_open_data && self.open_only_local))?;
        let path = path.ok_or_else(|| not_found(text))?;
        let (allow, is_allowed) = path.allows(&head.method);
        if !is_allowed {
            let reason = format!("{text} does not support {}, but {allow}", head.method);
            return Err(ProblemDetails::method_not_allowed(allow, reason));
        }
        match path {
            AdminPath::Shown(shown) => {
                let is_open = shown.is_open() && !(shown == Shown::Ready && is_verbose(query));
                let token_end = match is_open {
                    true => TokenEnd::NEVER,
                    false => {
                        let operator = self.operator(head).await.map_err(|refused| refused.why)?;
                        self.token_end(&operator)
                    }
                };
                self.show(shown, query, token_end).await
            }
            AdminPath::Inspected(name) => {
                let operator = self.operator_with_refusal_logged(head).await?;
                let token_end = self.token_end(&operator);
                let principal = &operator.principal;
                self.storage_views.begin(&self.node, principal, name, query, token_end).await
            }
            AdminPath::Action(action) => {
                let operator = self.operator_with_refusal_logged(head).await?;
                let line = ActionLine::begin(&operator.principal, text, query);
                let answer = match check_action(head) {
                    Ok(()) => self.act(action, query, self.token_end(&operator)).await,
                    Err(problem) => Err(problem),
                };
                line.end(answer)
            }
        }
    }

    /// Checks that the client may act as an operator, and returns it.
    async fn operator(&self, head: &Parts) -> Result<Arc<Caller>, RefusedOperator> {
        let refused = |caller, why| RefusedOperator { caller, why };
        let caller = self.access.caller(&head.headers, head.extensions.get()).await;
        let caller = caller.map_err(|why| refused(None, why))?;
        match check_operator(&caller) {
            Ok(()) => Ok(caller),
            Err(why) => Err(refused(Some(caller), why)),
        }
    }

    /// Checks that the client may act as an operator, and returns it. Logs a refusal.
    async fn operator_with_refusal_logged(
        &self,
        head: &Parts,
    ) -> Result<Arc<Caller>, ProblemDetails> {
        self.operator(head).await.map_err(|RefusedOperator { caller, why }| {
            let principal = caller.as_ref().map(|caller| &caller.principal);
            note_refused(principal, head, why.status());
            why
        })
    }

    fn token_end(&self, operator: &Caller) -> TokenEnd {
        TokenEnd::of(operator.expires, self.node.clock())
    }

    async fn show(&self, shown: Shown, query: Option<&str>, token_end: TokenEnd) -> Answer {
        let node = &self.node;
        Ok(match shown {
            Shown::Page => self.page.response(),
            Shown::Live => text(StatusCode::OK, "ok\n"),
            Shown::Ready => self.ready(is_verbose(query)).await,
            Shown::Metrics => text(StatusCode::OK, self.renderer.text().await?),
            Shown::Status => {
                check_query(&[], query)?;
                let status = node.status().await;
                json_response(StatusCode::OK, &json!({ "version": self.version, "node": status }))
            }
            Shown::Cluster => {
                check_query(&[], query)?;
                json_response(StatusCode::OK, &node.cluster_status())
            }
            Shown::ClusterEvents => {
                check_query(&[], query)?;
                let (shown, watched) = (node.clone(), node.clone());
                let changed = move || {
                    let node = watched.clone();
                    async move { node.cluster_changed().await }
                };
                self.streams.open(move || cluster::event(&shown), changed, token_end)?
            }
            Shown::Sequences => sequences::list(node, query).await?,
            Shown::Repairs => repair::list(node, query).await?,
        })
    }

    async fn act(&self, action: Action, query: Option<&str>, token_end: TokenEnd) -> Answer {
        let node = &self.node;
        Ok(match action {
            Action::Order(order) => cluster::order(node, order, query).await?,
            Action::Drain => cluster::drain(node, query)?,
            Action::StepDown => {
                check_query(&[], query)?;
                node.step_down().map_err(|error| {
                    let reason = error.to_string();
                    ProblemDetails::new(StatusCode::CONFLICT, "not_leading", reason)
                })?;
                json_response(StatusCode::ACCEPTED, &json!({ "steppingDown": true }))
            }
            Action::MarkEvent => repair::mark(node, query).await?,
            Action::RemoveRow => repair::remove(node, query).await?,
            Action::RepairNumber => repair::number(node, query).await?,
            Action::Backup => {
                check_query(&[], query)?;
                self.backups.begin(token_end).await?
            }
        })
    }

    /// Answers whether the node can do commands, itself or by forwarding them.
    async fn ready(&self, is_verbose: bool) -> Response<Body> {
        let is_ready = self.node.is_ready();
        let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        if is_verbose {
            return json_response(status, &self.node.status().await);
        }
        let ready = if is_ready { "ready" } else { "not ready" };
        match self.node.count_full() {
            0 => text(status, format!("{ready}\n")),
            full => text(status, format!("{ready}, full partitions: {full}\n")),
        }
    }
}

/// Whether a probe asks for the whole status, which is for operators only.
fn is_verbose(query: Option<&str>) -> bool {
    parameters(query).any(|(name, _)| name == "verbose")
}

fn not_found(path: &str) -> ProblemDetails {
    let named = |(text, path): &(&str, AdminPath<'_>)| match path {
        AdminPath::Action(_) => format!("POST {text}"),
        AdminPath::Shown(_) | AdminPath::Inspected(_) => (*text).to_owned(),
    };
    let known = Vec::from_iter(PATHS.iter().map(named)).join(", ");
    ProblemDetails::not_found(format!(
        "the path {path} does not exist; the admin endpoint has {known}, /inspect/…"
    ))
    .with(UNKNOWN_PATH_PORT, "admin")
}

fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    bytes_response(status, "text/plain; charset=utf-8", text)
}
