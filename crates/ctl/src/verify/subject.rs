//! The storage of a job, as trials see it.

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use clock::Clock;
use istorage::StorageDriver;
use tck::storage::{KeyspaceTracker, Scale, Subject};

use crate::storage_target::StorageTarget;

/// The most time for a connection.
pub(super) const CONNECT: Duration = Duration::from_secs(30);

/// The storage, as trials see it.
pub(crate) struct ConnectedStorage {
    pub(crate) target: StorageTarget,
    pub(crate) clock: Clock,
    /// The keyspaces that were made. They are dropped when the job is done.
    pub(crate) keyspaces: KeyspaceTracker,
    pub(super) first: Arc<dyn StorageDriver>,
    /// A folder for further files, on the same disk as the file that is proved.
    pub(super) spares: Option<PathBuf>,
}

impl ConnectedStorage {
    async fn connect(&self, clock: Clock) -> istorage::Result<Arc<dyn StorageDriver>> {
        let deadline = clock.now() + CONNECT;
        let driver = self.target.connect(clock, deadline).await?;
        Ok(self.keyspaces.track(driver))
    }
}

#[async_trait]
impl Subject for ConnectedStorage {
    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    fn scale(&self) -> Scale {
        if self.target.is_embedded() { Scale::Embedded } else { Scale::Server }
    }

    async fn node(&self, wall_ahead_ms: i64) -> istorage::Result<Arc<dyn StorageDriver>> {
        if self.target.is_embedded() {
            return Ok(self.keyspaces.track(Arc::clone(&self.first)));
        }
        self.connect(self.clock.with_wall_offset(wall_ahead_ms)).await
    }

    async fn spare(&self) -> istorage::Result<Arc<dyn StorageDriver>> {
        let deadline = self.clock.now() + CONNECT;
        match (&self.target, &self.spares) {
            // Only one process can use a file, and only once. So a driver that may be closed needs
            // a file of its own.
            (StorageTarget::Redb(config), Some(folder)) => {
                let path = folder.join(format!("spare-{:x}.redb", self.clock.random()));
                let config = istorage_redb::RedbConfig { path, ..config.clone() };
                StorageTarget::Redb(config).connect(self.clock.clone(), deadline).await
            }
            // Each driver in memory has memory of its own. Its keyspaces end with the driver, so
            // they need no cleanup.
            (StorageTarget::Mem, _) => self.target.connect(self.clock.clone(), deadline).await,
            _ => self.connect(self.clock.clone()).await,
        }
    }
}
