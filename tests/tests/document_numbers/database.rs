//! A keyspace for one trial, and nodes that draw numbers from it.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use clock::{Clock, Instant};
use docnumbers::{Definition, DocNumberRows, FastSeries, FastSettings, Series};
use istorage::{KeyspaceName, SharedStorage, StorageDriver};
use tck::storage::{KeyspaceTracker, Subject};
use vvm_tests::trials::Fixture;

use crate::wrong::{DrawDefect, WrongReserver};

/// The longest time for anything. A server may need long for a keyspace.
const PATIENCE: Duration = Duration::from_secs(120);

/// The time limit of a call.
const CALL: Duration = Duration::from_secs(10);

/// The number of clients of the database. Nodes share them.
const CLIENTS: usize = 4;

/// A keyspace for one trial.
pub(crate) struct Database {
    clients: Vec<SharedStorage>,
    drivers: Vec<Arc<dyn StorageDriver>>,
    keyspaces: KeyspaceTracker,
    pub(crate) clock: Clock,
}

#[async_trait]
impl Fixture for Database {
    async fn new(subject: Arc<dyn Subject>) -> istorage::Result<Database> {
        let (keyspaces, clock) = (KeyspaceTracker::default(), subject.clock());
        let name = KeyspaceName::new(format!("docnumbers_{:016x}", clock.random()))?;
        let (mut clients, mut drivers) = (Vec::new(), Vec::new());
        for at in 0..CLIENTS {
            let driver = keyspaces.track(subject.node(0).await?);
            let until = clock.now() + PATIENCE;
            if at == 0 {
                driver.create(&name, until).await?;
            }
            let missing = || istorage::Error::unavailable("the keyspace of the trial is missing");
            clients.push(driver.open(&name, until).await?.ok_or_else(missing)?);
            drivers.push(driver);
        }
        Ok(Database { clients, drivers, keyspaces, clock })
    }

    async fn remove(self) -> istorage::Result<()> {
        let left = self.keyspaces.drop_all(&*self.drivers[0], &self.clock).await;
        left.into_iter().try_for_each(|(_, error)| Err(error))
    }
}

impl Database {
    pub(crate) fn soon(&self) -> Instant {
        self.clock.now() + PATIENCE
    }

    pub(crate) fn rows(&self, client: usize) -> DocNumberRows {
        let storage = Arc::clone(&self.clients[client % CLIENTS]);
        DocNumberRows::new(storage, self.clock.clone(), "n", CALL)
    }

    /// The same database, as nodes with a defect use it.
    pub(crate) fn with_defect(&self, defect: DrawDefect) -> Database {
        let clients = self.clients.iter().map(|client| {
            let wrong: SharedStorage = WrongReserver::of(Arc::clone(client), defect);
            wrong
        });
        Database {
            clients: clients.collect(),
            drivers: self.drivers.clone(),
            keyspaces: KeyspaceTracker::default(),
            clock: self.clock.clone(),
        }
    }

    /// Starts a node of the orders, which count for the whole application.
    pub(crate) async fn node(&self, number: usize, settings: FastSettings) -> FastSeries {
        let scope = docnumbers::Scope::Application;
        let definition = Definition { scope, ..Definition::new("order", "O{counter:9}") };
        let (series, rows) = (Series::new(definition).unwrap(), self.rows(number));
        let owner = format!("node {number}");
        FastSeries::open(series, rows, owner, settings, self.soon()).await.unwrap()
    }
}
