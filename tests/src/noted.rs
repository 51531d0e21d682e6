//! Which keyspaces were made through a driver, so that all of them can be dropped, whoever chose their names.
//!
//! A keyspace is noted before it is made: also one whose making failed may be there.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use clock::Instant;
use istorage::{KeyspaceName, Result, SharedStorage, StorageDriver};

/// The keyspaces that may be there. Clones are the same notes.
#[derive(Clone, Debug, Default)]
pub struct Notes(Arc<Mutex<BTreeSet<KeyspaceName>>>);

impl Notes {
    /// The driver, which notes from now on what it makes.
    #[must_use]
    pub fn of(&self, driver: Arc<dyn StorageDriver>) -> Arc<dyn StorageDriver> {
        Arc::new(Noted { driver, notes: self.clone() })
    }

    /// All keyspaces that were noted.
    #[must_use]
    pub fn keyspaces(&self) -> BTreeSet<KeyspaceName> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, keyspace: &KeyspaceName) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(keyspace.clone());
    }
}

#[derive(Debug)]
struct Noted {
    driver: Arc<dyn StorageDriver>,
    notes: Notes,
}

#[async_trait]
impl StorageDriver for Noted {
    fn name(&self) -> &'static str {
        self.driver.name()
    }

    async fn create(&self, keyspace: &KeyspaceName, deadline: Instant) -> Result<()> {
        self.notes.note(keyspace);
        self.driver.create(keyspace, deadline).await
    }

    async fn open(
        &self,
        keyspace: &KeyspaceName,
        deadline: Instant,
    ) -> Result<Option<SharedStorage>> {
        self.driver.open(keyspace, deadline).await
    }

    async fn drop_keyspace(&self, keyspace: &KeyspaceName, deadline: Instant) -> Result<()> {
        self.driver.drop_keyspace(keyspace, deadline).await
    }

    async fn close(&self) {
        self.driver.close().await;
    }
}
