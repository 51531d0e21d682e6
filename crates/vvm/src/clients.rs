//! The two clients of the storage: the client of elections and the client of requests.
//!
//! Invariant: each client reads and writes on one runtime only. The client of elections uses the
//! runtime that launched the node. The client of requests uses the runtime of services and
//! partitions. A connection belongs to the runtime that opened it. If both used one client, a
//! renewal of the lease could wait for threads that requests keep busy. Closing a client, and
//! waiting for its failure, happen on the runtime that launched the node.

use std::sync::Arc;

use clock::Clock;
use futures::future::{Either, join, select};
use istorage::StorageDriver;
use sysvvm::System;
use tokio::{runtime::Handle, task::JoinSet};

use crate::{NodeSettings, Problem, ServiceError};

/// The clients, none of which is open yet.
#[derive(Debug)]
pub(crate) struct Clients {
    pub(crate) elections: Arc<dyn StorageDriver>,
    /// The client of requests; `None` if the storage has no connections, or if everything is on one
    /// runtime. Then elections and requests share a client.
    pub(crate) requests: Option<Arc<dyn StorageDriver>>,
    /// The runtime of services and partitions.
    pub(crate) runtime: Handle,
}

/// The system keyspace, as each client opened it.
#[derive(Debug)]
pub(crate) struct SystemClients {
    pub(crate) elections: Arc<System>,
    pub(crate) requests: Arc<System>,
}

impl Clients {
    /// Opens the system keyspace with both clients at the same time.
    pub(crate) async fn open(
        &self,
        settings: &NodeSettings,
        clock: &Clock,
    ) -> Result<SystemClients, Problem> {
        let deadline = clock.now() + settings.open_within;
        let open = |driver: &Arc<dyn StorageDriver>| {
            let (driver, name) = (Arc::clone(driver), settings.system.clone());
            let opening = System::open(driver, name, clock.clone(), deadline);
            async move { Ok::<_, Problem>(Arc::new(opening.await?)) }
        };
        let elections = async {
            let system = open(&self.elections).await?;
            system.fix_seats(settings.seats, deadline).await?;
            Ok(system)
        };
        let Some(requests) = &self.requests else {
            let elections = elections.await?;
            return Ok(SystemClients { requests: Arc::clone(&elections), elections });
        };
        let requests = self.on_requests(open(requests));
        let (elections, requests) = tokio::try_join!(elections, requests)?;
        Ok(SystemClients { elections, requests })
    }

    /// Runs work on the runtime of requests. Dropping the call ends the work.
    pub(crate) async fn on_requests<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Problem>> + Send + 'static,
    ) -> Result<T, Problem> {
        let mut task = JoinSet::new();
        task.spawn_on(work, &self.runtime);
        match task.join_next().await {
            Some(Ok(done)) => done,
            ended => {
                let why = ended.and_then(Result::err).map_or("no task".into(), ServiceError::from);
                Err(Problem::ServiceEnded { service: "the runtime of requests", why })
            }
        }
    }

    /// Waits until a client cannot go on.
    pub(crate) async fn failed(&self) -> Problem {
        let elections = self.elections.failed();
        let error = match &self.requests {
            None => elections.await,
            Some(requests) => match select(elections, requests.failed()).await {
                Either::Left((error, _)) | Either::Right((error, _)) => error,
            },
        };
        Problem::of_storage(&error)
    }

    /// Closes both clients.
    pub(crate) async fn close(&self) {
        let elections = self.elections.close();
        match &self.requests {
            None => elections.await,
            Some(requests) => {
                join(elections, requests.close()).await;
            }
        }
    }
}
