//! The driver in memory, for tests, for development, and as the simplest correct implementation of
//! the contract.
//!
//! One lock guards the rows of a keyspace. A call takes the lock once, or once per page, and never
//! holds it across an await. Time comes from the injected clock, so a test decides when rows
//! expire.

mod keyspace;
mod rows;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use base::locks::lock;
use clock::{Clock, Instant};

use crate::{Error, Guarded, KeyspaceName, Result, SharedStorage, StorageDriver};
pub use keyspace::CAPABILITIES;
use keyspace::MemStorage;
use rows::SharedRows;

/// A database in memory. Clones share the database, as the nodes of a cluster share a server.
#[derive(Clone, Debug)]
pub struct MemDriver {
    clock: Clock,
    keyspaces: Keyspaces,
}

/// The keyspaces, `None` once the driver is closed.
type Keyspaces = Arc<Mutex<Option<BTreeMap<KeyspaceName, SharedRows>>>>;

impl MemDriver {
    /// An empty database. Its rows expire by `clock`.
    pub fn new(clock: Clock) -> MemDriver {
        MemDriver { clock, keyspaces: Arc::new(Mutex::new(Some(BTreeMap::new()))) }
    }

    fn with_keyspaces<T>(
        &self,
        act: impl FnOnce(&mut BTreeMap<KeyspaceName, SharedRows>) -> T,
    ) -> Result<T> {
        lock(&self.keyspaces).as_mut().map(act).ok_or_else(Error::closed)
    }
}

#[async_trait]
impl StorageDriver for MemDriver {
    fn name(&self) -> &'static str {
        "mem"
    }

    async fn create(&self, keyspace: &KeyspaceName, _deadline: Instant) -> Result<()> {
        self.with_keyspaces(|keyspaces| {
            keyspaces.entry(keyspace.clone()).or_default();
        })
    }

    async fn open(
        &self,
        keyspace: &KeyspaceName,
        _deadline: Instant,
    ) -> Result<Option<SharedStorage>> {
        let rows = self.with_keyspaces(|keyspaces| keyspaces.get(keyspace).cloned())?;
        let storage = |rows| Arc::new(MemStorage::new(rows, self.clock.clone()));
        Ok(rows
            .map(|rows| Arc::new(Guarded::new(storage(rows), self.clock.clone())) as SharedStorage))
    }

    async fn drop_keyspace(&self, keyspace: &KeyspaceName, _deadline: Instant) -> Result<()> {
        let dropped = self.with_keyspaces(|keyspaces| keyspaces.remove(keyspace))?;
        if let Some(rows) = dropped {
            lock(&rows).close();
        }
        Ok(())
    }

    async fn close(&self) {
        let keyspaces = lock(&self.keyspaces).take();
        for rows in keyspaces.into_iter().flat_map(BTreeMap::into_values) {
            lock(&rows).close();
        }
    }
}
