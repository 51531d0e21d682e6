//! The parts that all operations of the API share: the node, the settings, the memory of requests
//! and the turns of reads.

use std::sync::Arc;

use clock::Instant;
use hyper::{Method, Version, header::HeaderMap};
use tokio::sync::Semaphore;
use vvm::{
    App, Node,
    eventlog::{QName, Table},
};

use super::settings::HttpApiSettings;
use crate::{memory::MemoryPool, problem::ProblemDetails, read_throttle::ReadThrottle, rows};

/// Answers the requests to the API.
pub(super) struct ApiHandler {
    pub(super) node: Node,
    pub(super) settings: HttpApiSettings,
    pub(super) bodies: MemoryPool,
    pub(super) answers: MemoryPool,
    /// The memory for answers that are too large for their share of `answers`. Small answers do not
    /// wait behind them here.
    pub(super) large_answers: MemoryPool,
    pub(super) logs: Arc<Semaphore>,
    pub(super) throttle: ReadThrottle,
}

/// The properties of a request besides its body.
pub(super) struct RequestHead {
    pub(super) request: String,
    pub(super) headers: HeaderMap,
    pub(super) path: String,
    pub(super) query: Option<String>,
    pub(super) method: Method,
    pub(super) version: Version,
}

impl ApiHandler {
    pub(super) fn new(node: Node, settings: HttpApiSettings) -> ApiHandler {
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

    /// The deadline of a request that arrives now, for waiting and for its answer.
    pub(super) fn deadline(&self) -> Instant {
        self.node.clock().now() + self.settings.command_time
    }
}

/// Finds the table of a document in the schema of its application.
pub(super) fn table_of<'a>(app: &'a App, name: &QName) -> Result<&'a Table, ProblemDetails> {
    rows::table_of(app.application().schema(), name.as_str())
}
