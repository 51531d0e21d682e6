//! A storage that a command opens without a node.

use std::{sync::Arc, time::Duration};

use clock::{Clock, Instant};
use istorage::{ErrorKind, KeyspaceName, StorageDriver};

use crate::{CommandError, storage_target::StorageTarget};

/// The most time to connect to a storage and to open its system keyspace.
pub(crate) const OPEN_TIME: Duration = Duration::from_secs(30);

/// A storage, and the name of its system keyspace.
#[derive(Debug)]
pub struct NamedStorage {
    pub(crate) target: StorageTarget,
    pub(crate) system: KeyspaceName,
}

impl NamedStorage {
    /// Names a storage and its system keyspace, which has the usual name if `system` is `None`.
    ///
    /// # Errors
    /// Never with the usual name.
    pub fn new(
        target: StorageTarget,
        system: Option<KeyspaceName>,
    ) -> Result<NamedStorage, CommandError> {
        let usual = || KeyspaceName::new(vvm::NodeSettings::SYSTEM);
        let system = system.map_or_else(usual, Ok);
        let wrong = |error| CommandError::storage("the name of the system keyspace", &error);
        Ok(NamedStorage { target, system: system.map_err(wrong)? })
    }

    /// Opens a storage that exists, for writing. A wrong path would otherwise make an empty file.
    pub(crate) async fn open_existing(
        &self,
        clock: Clock,
        deadline: Instant,
    ) -> istorage::Result<Arc<dyn StorageDriver>> {
        if self.target.is_embedded() {
            self.target.open_for_reading(clock.clone(), deadline).await?.close().await;
        }
        self.target.connect(clock, deadline).await
    }

    /// Returns the error of a storage that cannot be opened. `advice` helps if a node uses the
    /// file.
    pub(crate) fn not_opened(&self, error: &istorage::Error, advice: &str) -> CommandError {
        let mut what = format!("cannot open {}", self.target);
        if error.kind() == ErrorKind::Unavailable && self.target.is_embedded() {
            what += &format!(" (if a node uses the file, {advice})");
        }
        CommandError::storage(&what, error)
    }
}
