//! A database for one trial, and several nodes that race on it.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use clock::{Clock, Instant};
use istorage::{AppStorageExt, Key, KeyspaceName, StorageDriver};
use sysvvm::System;
use tck::storage::{KeyspaceTracker, Subject};
use vvm_tests::trials::Fixture;

/// The longest time for anything. A server may need long for a keyspace.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The number of nodes that race.
pub(crate) const NODES: usize = 4;

/// A database for one trial.
pub(crate) struct Database {
    pub(crate) nodes: Vec<Arc<dyn StorageDriver>>,
    keyspaces: KeyspaceTracker,
    pub(crate) system: KeyspaceName,
    pub(crate) clock: Clock,
}

#[async_trait]
impl Fixture for Database {
    async fn new(subject: Arc<dyn Subject>) -> istorage::Result<Database> {
        let (keyspaces, clock) = (KeyspaceTracker::default(), subject.clock());
        let mut nodes = Vec::new();
        for _ in 0..NODES {
            nodes.push(keyspaces.track(subject.node(0).await?));
        }
        // The name is as long as the longest name that a system keyspace may have.
        let system = KeyspaceName::new(format!("registry_{:023x}", clock.random()))?;
        Ok(Database { nodes, keyspaces, system, clock })
    }

    async fn remove(self) -> istorage::Result<()> {
        let left = self.keyspaces.drop_all(&*self.nodes[0], &self.clock).await;
        left.into_iter().try_for_each(|(_, error)| Err(error))
    }
}

impl Database {
    pub(crate) fn soon(&self) -> Instant {
        self.clock.now() + PATIENCE
    }

    pub(crate) async fn open(&self, node: usize) -> sysvvm::Result<System> {
        let driver = Arc::clone(&self.nodes[node]);
        System::open(driver, self.system.clone(), self.clock.clone(), self.soon()).await
    }

    pub(crate) async fn get(&self, system: &System, key: &Key) -> Bytes {
        system.storage().get_linearizable(key, self.soon()).await.unwrap().unwrap()
    }

    pub(crate) async fn swap(&self, system: &System, key: &Key, old: &Bytes, new: &Bytes) {
        let (old, new) = (old.clone(), new.clone());
        let swap = system.storage().compare_and_swap(key.clone(), old, new, None, self.soon());
        assert!(swap.await.unwrap().is_applied());
    }
}
