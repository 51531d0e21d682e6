//! The session that a driver and its keyspaces share, until the session is closed.

use std::{fmt, sync::Arc, time::Duration};

use clock::{Clock, Instant};
use istorage::{Error, Result};
use scylla::{
    client::session::Session,
    errors::ExecutionError,
    policies::load_balancing::LoadBalancingPolicy,
    response::{PagingState, PagingStateResponse, query_result::QueryResult},
    serialize::{batch::BatchValues, row::SerializeRow},
    statement::{batch::Batch, prepared::PreparedStatement},
};
use tokio::sync::{RwLock, RwLockReadGuard};

use crate::{routing::Routing, suspects::Suspects};

/// The client's answer to a request.
type ClientResult<T> = std::result::Result<T, ExecutionError>;

/// A session that notes servers that do not answer, and avoids them. Each request has a deadline,
/// when its caller drops it.
pub(crate) struct SessionClient {
    session: Session,
    clock: Clock,
    suspects: Arc<Suspects>,
    conditional: Arc<dyn LoadBalancingPolicy>,
}

impl SessionClient {
    pub(crate) fn new(session: Session, clock: Clock, suspects: Arc<Suspects>) -> SessionClient {
        let conditional = Arc::new(Routing::conditional(Arc::clone(&suspects)));
        SessionClient { session, clock, suspects, conditional }
    }

    /// The session itself, for requests about the cluster and its schema.
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// The load balancing policy of conditional writes.
    pub(crate) fn conditional(&self) -> &Arc<dyn LoadBalancingPolicy> {
        &self.conditional
    }

    /// The deadline of a page that is requested now.
    pub(crate) fn deadline(&self, page_timeout: Duration) -> Instant {
        self.clock.now() + page_timeout
    }

    pub(crate) async fn execute(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
        deadline: Instant,
    ) -> ClientResult<QueryResult> {
        self.suspects.watch(deadline, self.session.execute_unpaged(statement, values)).await
    }

    pub(crate) async fn batch(
        &self,
        batch: &Batch,
        values: impl BatchValues,
        deadline: Instant,
    ) -> ClientResult<QueryResult> {
        self.suspects.watch(deadline, self.session.batch(batch, values)).await
    }

    pub(crate) async fn page(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
        state: PagingState,
        deadline: Instant,
    ) -> ClientResult<(QueryResult, PagingStateResponse)> {
        let page = self.session.execute_single_page(statement, values, state);
        self.suspects.watch(deadline, page).await
    }
}

/// The shared client, `None` once it is closed. A call holds the read lock until the call has its
/// answer. So `close` waits for the calls under way, and every later call fails as closed.
#[derive(Clone)]
pub(crate) struct SharedClient(Arc<RwLock<Option<SessionClient>>>);

impl SharedClient {
    pub(crate) fn new(client: SessionClient) -> SharedClient {
        SharedClient(Arc::new(RwLock::new(Some(client))))
    }

    pub(crate) async fn client(&self) -> Result<RwLockReadGuard<'_, SessionClient>> {
        let client = self.0.read().await;
        RwLockReadGuard::try_map(client, Option::as_ref).map_err(|_| Error::closed())
    }

    pub(crate) async fn close(&self) {
        // Dropping the session ends its tasks, and its connections end with the tasks.
        self.0.write().await.take();
    }
}

impl fmt::Debug for SharedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedClient")
    }
}
