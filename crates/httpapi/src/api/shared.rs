//! The parts that the API and the cluster port of a node share.

use std::sync::{Arc, OnceLock};

use vvm::Node;

use super::{handler::ApiHandler, settings::HttpApiSettings};
use crate::cluster::ClusterTls;

/// The handler of all requests of a node. The first service that runs makes it, because only a
/// running service has the node.
#[derive(Debug)]
pub(crate) struct SharedApi {
    settings: HttpApiSettings,
    /// The keys for TLS with other nodes, if the node is in a cluster.
    cluster: Option<Option<ClusterTls>>,
    handler: OnceLock<Arc<ApiHandler>>,
}

impl SharedApi {
    pub(super) fn new(settings: HttpApiSettings, cluster: Option<Option<ClusterTls>>) -> SharedApi {
        SharedApi { settings, cluster, handler: OnceLock::new() }
    }

    pub(crate) fn settings(&self) -> &HttpApiSettings {
        &self.settings
    }

    pub(crate) fn handler(&self, node: Node) -> Arc<ApiHandler> {
        let new = || Arc::new(ApiHandler::new(node, self.settings.clone(), self.cluster.clone()));
        Arc::clone(self.handler.get_or_init(new))
    }
}
