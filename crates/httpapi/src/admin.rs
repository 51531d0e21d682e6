//! The admin endpoint: the status of the node, and the actions of an operator.

mod repair;
mod sequences;

use std::{
    fmt::{self, Display},
    net::SocketAddr,
    str::FromStr,
};

use async_trait::async_trait;
use bytes::Bytes;
use hyper::{Method, Request, Response, StatusCode, http::request::Parts};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use vvm::{App, Node, Service, ServiceError, Stage, sysvvm::AppName};

use crate::{
    HttpLimits,
    check::check,
    problem::ProblemDetails,
    query::{parameter, parameters},
    request_body::RequestBody,
    response::{Body, bytes_response, json_response},
    server::{self, RequestHandler},
    shared_renderer::{MetricsRenderer, SharedRenderer},
};

/// The settings of the admin endpoint.
#[derive(Clone)]
pub struct AdminSettings {
    /// The address on which the endpoint listens.
    pub listen: SocketAddr,
    /// The limits of connections.
    pub limits: HttpLimits,
    /// The metrics of the process.
    pub metrics: MetricsRenderer,
    /// The version of the program.
    pub version: &'static str,
    /// Whether the endpoint serves only this machine, as for the API.
    pub only_local: bool,
}

impl AdminSettings {
    /// The default settings: the default limits, and only this machine is served.
    pub fn new(
        listen: SocketAddr,
        metrics: MetricsRenderer,
        version: &'static str,
    ) -> AdminSettings {
        let limits = HttpLimits::default();
        AdminSettings { listen, limits, metrics, version, only_local: true }
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
        self.listener = Some(server::bind(self.settings.listen)?);
        Ok(())
    }

    async fn run(self: Box<Self>, node: Node, stop: CancellationToken) -> Result<(), ServiceError> {
        let AdminEndpoint { settings, listener } = *self;
        let listener = listener.ok_or("the admin endpoint was not bound to its port")?;
        let (clock, limits) = (node.clock().clone(), settings.limits);
        let renderer = SharedRenderer::new(settings.metrics, clock.clone());
        let AdminSettings { version, only_local, .. } = settings;
        let requests = AdminHandler { node, renderer, version, only_local };
        server::serve("admin", listener, requests, limits, &clock, &stop).await
    }
}

struct AdminHandler {
    node: Node,
    renderer: SharedRenderer,
    version: &'static str,
    only_local: bool,
}

impl RequestHandler for AdminHandler {
    async fn answer(&self, request: Request<&mut RequestBody>) -> Response<Body> {
        let (head, _) = request.into_parts();
        self.dispatch(&head).await.unwrap_or_else(ProblemDetails::into_response)
    }
}

impl AdminHandler {
    async fn dispatch(&self, head: &Parts) -> Result<Response<Body>, ProblemDetails> {
        check(head, self.only_local)?;
        let query = head.uri.query().unwrap_or_default();
        Ok(match (&head.method, head.uri.path()) {
            (&Method::GET | &Method::HEAD, "/livez") => text(StatusCode::OK, "ok\n"),
            (&Method::GET | &Method::HEAD, "/readyz") => self.ready(query).await,
            (&Method::GET | &Method::HEAD, "/metrics") => {
                text(StatusCode::OK, self.renderer.text().await?)
            }
            (&Method::GET | &Method::HEAD, "/status") => {
                let status = self.node.status().await;
                json_response(StatusCode::OK, &json!({ "version": self.version, "node": status }))
            }
            (&Method::POST, "/step-down") => {
                self.node.step_down().map_err(|error| {
                    let reason = error.to_string();
                    ProblemDetails::new(StatusCode::CONFLICT, "not_leading", reason)
                })?;
                json_response(StatusCode::ACCEPTED, &json!({ "steppingDown": true }))
            }
            (&Method::GET | &Method::HEAD, "/repairs") => {
                repair::list(&self.node, head.uri.query()).await?
            }
            (&Method::GET | &Method::HEAD, "/sequences") => {
                sequences::list(&self.node, head.uri.query()).await?
            }
            (&Method::POST, "/repairs/mark") => repair::mark(&self.node, head.uri.query()).await?,
            (&Method::POST, "/repairs/remove") => {
                repair::remove(&self.node, head.uri.query()).await?
            }
            (
                method,
                path @ ("/livez" | "/readyz" | "/metrics" | "/status" | "/step-down" | "/repairs"
                | "/repairs/mark" | "/repairs/remove" | "/sequences"),
            ) => {
                let is_action = matches!(path, "/step-down" | "/repairs/mark" | "/repairs/remove");
                let allow = if is_action { "POST" } else { "GET, HEAD" };
                let reason = format!("{path} does not support {method}, but {allow}");
                return Err(ProblemDetails::method_not_allowed(allow, reason));
            }
            (_, path) => {
                let all = "/livez, /readyz, /metrics, /status, /sequences, /repairs, POST /repairs/mark, POST /repairs/remove, POST /step-down";
                return Err(ProblemDetails::not_found(format!(
                    "the path {path} does not exist; the admin endpoint has {all}"
                )));
            }
        })
    }

    /// Answers whether commands run on this node.
    async fn ready(&self, query: &str) -> Response<Body> {
        let is_ready = self.node.stage() == Stage::Leading;
        let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        if parameters(Some(query)).any(|(name, _)| name == "verbose") {
            return json_response(status, &self.node.status().await);
        }
        let ready = if is_ready { "ready" } else { "not ready" };
        match self.node.count_full() {
            0 => text(status, format!("{ready}\n")),
            full => text(status, format!("{ready}, full partitions: {full}\n")),
        }
    }
}

/// Returns the value of a parameter that a request must have.
fn needed<T: FromStr<Err: Display>>(query: Option<&str>, name: &str) -> Result<T, ProblemDetails> {
    let missing = || ProblemDetails::bad_request(format!("the parameter `{name}` is missing"));
    parameter(query, name)?.ok_or_else(missing)
}

fn found_app<'a>(node: &'a Node, app: &AppName) -> Result<&'a App, ProblemDetails> {
    let found = node.app(app.owner(), app.name());
    found.ok_or_else(|| ProblemDetails::not_found(format!("the node has no application {app}")))
}

fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    bytes_response(status, "text/plain; charset=utf-8", text)
}
