//! The session that a driver and its keyspaces share, until it is closed.

use std::{fmt, sync::Arc, time::Duration};

use clock::Instant;
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

/// What the client says of a request.
type Answer<T> = std::result::Result<T, ExecutionError>;

/// A session whose requests avoid servers that do not answer. Each request has a deadline at which its caller drops it.
pub(crate) struct Client {
    session: Session,
    suspects: Arc<Suspects>,
    conditional: Arc<dyn LoadBalancingPolicy>,
}

impl Client {
    pub(crate) fn new(session: Session, suspects: Arc<Suspects>) -> Client {
        let conditional = Arc::new(Routing::conditional(Arc::clone(&suspects)));
        Client { session, suspects, conditional }
    }

    /// For requests about the cluster and its schema.
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// What routes conditional writes.
    pub(crate) fn conditional(&self) -> &Arc<dyn LoadBalancingPolicy> {
        &self.conditional
    }

    /// When a page that is asked for now has to be there.
    pub(crate) fn deadline(&self, page_timeout: Duration) -> Instant {
        self.suspects.deadline(page_timeout)
    }

    pub(crate) async fn execute(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
        deadline: Instant,
    ) -> Answer<QueryResult> {
        self.suspects.watch(deadline, self.session.execute_unpaged(statement, values)).await
    }

    pub(crate) async fn batch(
        &self,
        batch: &Batch,
        values: impl BatchValues,
        deadline: Instant,
    ) -> Answer<QueryResult> {
        self.suspects.watch(deadline, self.session.batch(batch, values)).await
    }

    pub(crate) async fn page(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
        state: PagingState,
        deadline: Instant,
    ) -> Answer<(QueryResult, PagingStateResponse)> {
        let page = self.session.execute_single_page(statement, values, state);
        self.suspects.watch(deadline, page).await
    }
}

/// `None` once it is closed. A call holds the lock for reading until it has its answer, so closing waits for the calls
/// under way, and every later one finds nothing.
#[derive(Clone)]
pub(crate) struct Shared(Arc<RwLock<Option<Client>>>);

impl Shared {
    pub(crate) fn new(client: Client) -> Shared {
        Shared(Arc::new(RwLock::new(Some(client))))
    }

    pub(crate) async fn client(&self) -> Result<RwLockReadGuard<'_, Client>> {
        let client = self.0.read().await;
        RwLockReadGuard::try_map(client, Option::as_ref).map_err(|_| Error::closed())
    }

    pub(crate) async fn close(&self) {
        // Dropping the session ends its tasks and with them its connections.
        self.0.write().await.take();
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}
