//! A storage where a write may land late.

use std::{sync::Arc, time::Duration};

use istorage::{Capabilities, SharedStorage, StorageWrapper};

/// A storage that claims that a write may land late, like a database on servers. So leaders fence
/// the ends of their logs on every driver.
#[derive(Debug)]
pub struct LateStorage(SharedStorage);

impl LateStorage {
    /// Wraps a storage.
    #[must_use]
    pub fn of(inner: SharedStorage) -> Arc<LateStorage> {
        Arc::new(LateStorage(inner))
    }
}

impl StorageWrapper for LateStorage {
    fn inner(&self) -> &SharedStorage {
        &self.0
    }

    fn capabilities(&self) -> Capabilities {
        let inner = self.0.capabilities();
        Capabilities { late_write: inner.late_write.max(Duration::from_secs(1)), ..inner }
    }
}
