//! The session that a driver and its keyspaces share, until it is closed.

use std::{fmt, sync::Arc};

use istorage::{Error, Result};
use scylla::client::session::Session;
use tokio::sync::{RwLock, RwLockReadGuard};

/// `None` once it is closed. A call holds the lock for reading until it has its answer, so closing waits for the calls
/// under way, and every later one finds nothing.
#[derive(Clone)]
pub(crate) struct Shared(Arc<RwLock<Option<Session>>>);

impl Shared {
    pub(crate) fn new(session: Session) -> Shared {
        Shared(Arc::new(RwLock::new(Some(session))))
    }

    pub(crate) async fn session(&self) -> Result<RwLockReadGuard<'_, Session>> {
        let session = self.0.read().await;
        RwLockReadGuard::try_map(session, Option::as_ref).map_err(|_| Error::closed())
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
