//! The parts that the API and the cluster port of a node share.

use std::{
    pin::pin,
    sync::{Arc, OnceLock},
};

use tokio_util::sync::CancellationToken;
use vvm::Node;

use crate::{
    context::{ApiContext, ClusterMode},
    settings::HttpApiSettings,
};

/// What both ports of a node share. The first service that runs makes it, because only a running
/// service has the node.
#[derive(Debug)]
pub(crate) struct SharedApi {
    settings: HttpApiSettings,
    cluster: ClusterMode,
    context: OnceLock<Arc<ApiContext>>,
    /// Cancelled when a service stops, to end answers that have no end of their own.
    stopping: CancellationToken,
}

impl SharedApi {
    pub(crate) fn new(settings: HttpApiSettings, cluster: ClusterMode) -> SharedApi {
        SharedApi {
            settings,
            cluster,
            context: OnceLock::new(),
            stopping: CancellationToken::new(),
        }
    }

    pub(crate) fn settings(&self) -> &HttpApiSettings {
        &self.settings
    }

    /// Runs a service until it ends. Answers that have no end of their own end when the service
    /// must stop.
    pub(crate) async fn run<T>(
        &self,
        stop: &CancellationToken,
        service: impl Future<Output = T>,
    ) -> T {
        let mut service = pin!(service);
        tokio::select! {
            ended = service.as_mut() => return ended,
            () = stop.cancelled() => self.stopping.cancel(),
        }
        service.await
    }

    pub(crate) fn context(&self, node: Node) -> Arc<ApiContext> {
        let new = || {
            let (settings, stop) = (self.settings.clone(), self.stopping.clone());
            Arc::new(ApiContext::new(node, settings, self.cluster.clone(), stop))
        };
        Arc::clone(self.context.get_or_init(new))
    }
}
