//! The HTTP API, as a service of a node.

mod body;
mod commands;
mod dispatch;
mod documents;
mod handler;
mod headers;
mod leader;
mod numbers;
mod reads;
mod settings;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use vvm::{Node, Service, ServiceError};

use self::handler::ApiHandler;
pub use self::settings::HttpApiSettings;
use crate::server;

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
