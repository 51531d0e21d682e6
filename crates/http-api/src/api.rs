//! The HTTP API, as a service of a node.

use std::sync::Arc;

use async_trait::async_trait;
use http_forward::{ClusterSettings, ClusterSettingsError};
use http_server::server::{ClientKind, Server, bind};
use tokio_util::sync::CancellationToken;
use vvm::{Node, Service, ServiceError};

use crate::{
    client_entry::ClientEntry, cluster_port::ClusterPort, context::ClusterMode,
    settings::HttpApiSettings, shared::SharedApi,
};

/// The HTTP API of a node.
#[derive(Debug)]
pub struct HttpApi {
    shared: Arc<SharedApi>,
    listener: Option<std::net::TcpListener>,
}

impl HttpApi {
    /// Creates the API. It listens when the node is launched.
    pub fn new(settings: HttpApiSettings) -> HttpApi {
        HttpApi { shared: Arc::new(SharedApi::new(settings, ClusterMode::Alone)), listener: None }
    }

    /// Creates the API of a node of a cluster, and the port on which the other nodes forward
    /// requests to this node. Both are services of the same node, in any order. The API forwards a
    /// request if another node owns its partition, and tries it again while a partition moves.
    ///
    /// # Errors
    /// If other machines can reach the port and it has no TLS.
    pub fn with_cluster(
        api: HttpApiSettings,
        cluster: ClusterSettings,
    ) -> Result<(HttpApi, ClusterPort), ClusterSettingsError> {
        cluster.check()?;
        let shared =
            Arc::new(SharedApi::new(api, ClusterMode::WithPeers { tls: cluster.tls.clone() }));
        let port = ClusterPort::new(cluster, Arc::clone(&shared));
        Ok((HttpApi { shared, listener: None }, port))
    }
}

#[async_trait]
impl Service for HttpApi {
    fn name(&self) -> &'static str {
        "api"
    }

    async fn bind(&mut self) -> Result<(), ServiceError> {
        self.listener = Some(bind(self.shared.settings().listen)?);
        Ok(())
    }

    async fn run(self: Box<Self>, node: Node, stop: CancellationToken) -> Result<(), ServiceError> {
        let HttpApi { shared, listener } = *self;
        let listener = listener.ok_or("the API was not bound to its port")?;
        let server = Server {
            name: "api",
            limits: shared.settings().limits,
            clients: ClientKind::Public(shared.settings().tls.clone()),
            clock: node.clock().clone(),
            stop: stop.clone(),
        };
        let context = shared.context(node);
        let served = server.serve(listener, ClientEntry::new(Arc::clone(&context)));
        tokio::select! {
            served = shared.run(&stop, served) => Ok(served?),
            () = context.access.follow() => Ok(()),
        }
    }
}
