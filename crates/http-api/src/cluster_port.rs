//! The cluster port, as a service of a node.

use std::sync::Arc;

use async_trait::async_trait;
use http_forward::{ClusterSettings, PeerCheck};
use http_server::{
    HttpLimits,
    server::{ClientKind, Server, bind},
};
use tokio_util::sync::CancellationToken;
use vvm::{Node, Service, ServiceError};

use crate::{peer_entry::PeerEntry, shared::SharedApi};

/// The bytes that a forwarding node adds to the head of the client's request.
const MARK_BYTES: usize = 4 << 10;

/// The port on which other nodes of the cluster forward requests to this node.
///
/// The port trusts its clients. It has mutual TLS, or it is on loopback.
#[derive(Debug)]
pub struct ClusterPort {
    settings: ClusterSettings,
    api: Arc<SharedApi>,
    listener: Option<std::net::TcpListener>,
}

impl ClusterPort {
    pub(crate) fn new(settings: ClusterSettings, api: Arc<SharedApi>) -> ClusterPort {
        ClusterPort { settings, api, listener: None }
    }
}

#[async_trait]
impl Service for ClusterPort {
    fn name(&self) -> &'static str {
        "cluster"
    }

    async fn bind(&mut self) -> Result<(), ServiceError> {
        self.listener = Some(bind(self.settings.listen)?);
        Ok(())
    }

    async fn run(self: Box<Self>, node: Node, stop: CancellationToken) -> Result<(), ServiceError> {
        let ClusterPort { settings, api, listener } = *self;
        let listener = listener.ok_or("the cluster port was not bound")?;
        let context = api.context(node.clone());
        let forwarder = context.forwarder.as_ref().ok_or("the API knows of no cluster")?;
        node.set_successor_check(Arc::new(PeerCheck(Arc::downgrade(forwarder.peers()))));
        let limits = HttpLimits {
            connections: settings.connections,
            head_bytes: api.settings().limits.head_bytes + MARK_BYTES,
            ..api.settings().limits
        };
        let server = Server {
            name: "cluster",
            limits,
            clients: ClientKind::Peers(settings.tls),
            clock: node.clock().clone(),
            stop: stop.clone(),
        };
        let serve = server.serve(listener, PeerEntry(Arc::clone(&context)));
        tokio::select! {
            served = api.run(&stop, serve) => Ok(served?),
            () = forwarder.peers().upkeep() => Ok(()),
        }
    }
}
