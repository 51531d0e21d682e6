//! The driver: a session, and the keyspaces of its cluster.

use std::sync::Arc;

use async_trait::async_trait;
use clock::{Clock, Instant};
use istorage::{Error, Guarded, KeyspaceName, Result, SharedStorage, StorageDriver};

use crate::{
    CassandraConfig, Replication, ServerSettings, connect,
    keyspace::{self, LastFailure},
    layout::Statements,
    server_settings,
    session::SharedClient,
    storage::CassandraStorage,
};

/// A Cassandra cluster. Each keyspace of the contract is a keyspace of the cluster.
///
/// A keyspace that holds anything but the table of this driver belongs to another program and is
/// refused. A keyspace without any table does not exist for this driver: `open` returns `None`, and
/// `create` makes the table in it. So an operator may prepare a keyspace with another replication.
#[derive(Debug)]
pub struct CassandraDriver {
    shared: SharedClient,
    clock: Clock,
    replication: Option<Replication>,
    datacenter: Option<String>,
    logs_in: bool,
}

impl CassandraDriver {
    /// Connects to a cluster. Plain writes get their timestamps from the wall time of `clock`, and
    /// `clock` also decides when a deadline has passed.
    ///
    /// # Errors
    /// `Invalid` if the configuration, a file that it names, or the password is wrong, or if no
    /// node can work with a setting of a server ([`SettingProblem`](crate::SettingProblem));
    /// `Unavailable` if no server can be reached before `deadline`.
    pub async fn connect(
        config: CassandraConfig,
        clock: Clock,
        deadline: Instant,
    ) -> Result<CassandraDriver> {
        let call = async |_: &mut _| Box::pin(connect::connect(&config, &clock)).await;
        let client = in_time(&clock, deadline, call).await?;
        let CassandraConfig { replication, datacenter, login, .. } = config;
        let (shared, logs_in) = (SharedClient::new(client), login.is_some());
        Ok(CassandraDriver { shared, clock, replication, datacenter, logs_in })
    }

    /// Asks each connected server for the settings that this driver relies on.
    ///
    /// # Errors
    /// `Unavailable` if a connected server does not answer before `deadline`.
    pub async fn server_settings(&self, deadline: Instant) -> Result<Vec<ServerSettings>> {
        let call = async |_: &mut _| {
            let client = self.shared.client().await?;
            Box::pin(server_settings::of_servers(client.session(), self.logs_in)).await
        };
        in_time(&self.clock, deadline, call).await
    }

    async fn open_storage(
        &self,
        name: &KeyspaceName,
        last_failure: &mut LastFailure,
    ) -> Result<Option<CassandraStorage>> {
        let client = self.shared.client().await?;
        let session = client.session();
        let datacenter = self.datacenter.as_deref();
        if !keyspace::exists(session, &self.clock, name, datacenter, last_failure).await? {
            return Ok(None);
        }
        keyspace::check_options(session, name).await?;
        // The client must know the replicas of the keyspace, even if another node has just created
        // the keyspace.
        if session.get_cluster_state().get_keyspace(name.as_str()).is_none() {
            let refreshed = session.refresh_metadata().await;
            refreshed.map_err(|error| {
                Error::unavailable("the description of the Cassandra cluster cannot be read")
                    .with_source(error)
            })?;
        }
        let statements = Statements::prepare(&client, name.as_str()).await?;
        Ok(Some(CassandraStorage::new(self.shared.clone(), statements)))
    }
}

#[async_trait]
impl StorageDriver for CassandraDriver {
    fn name(&self) -> &'static str {
        "cassandra"
    }

    async fn create(&self, keyspace: &KeyspaceName, deadline: Instant) -> Result<()> {
        let call = async |last_failure: &mut LastFailure| {
            let client = self.shared.client().await?;
            let replication = self.replication.as_ref();
            keyspace::create(client.session(), &self.clock, keyspace, replication, last_failure)
                .await
        };
        in_time(&self.clock, deadline, call).await
    }

    async fn open(
        &self,
        keyspace: &KeyspaceName,
        deadline: Instant,
    ) -> Result<Option<SharedStorage>> {
        // All statements are prepared at once, so the future is large.
        let call = async |last_failure: &mut LastFailure| {
            Box::pin(self.open_storage(keyspace, last_failure)).await
        };
        let storage = in_time(&self.clock, deadline, call).await?;
        let guarded = |storage| {
            Arc::new(Guarded::new(Arc::new(storage), self.clock.clone())) as SharedStorage
        };
        Ok(storage.map(guarded))
    }

    async fn drop_keyspace(&self, keyspace: &KeyspaceName, deadline: Instant) -> Result<()> {
        let call = async |last_failure: &mut LastFailure| {
            let client = self.shared.client().await?;
            keyspace::drop(client.session(), &self.clock, keyspace, last_failure).await
        };
        in_time(&self.clock, deadline, call).await
    }

    async fn close(&self) {
        self.shared.close().await;
    }
}

/// Bounds a call by a deadline. A call that misses the deadline fails as `Unavailable`, so use this
/// only for calls that may be repeated.
async fn in_time<T>(
    clock: &Clock,
    deadline: Instant,
    call: impl AsyncFnOnce(&mut LastFailure) -> Result<T>,
) -> Result<T> {
    let mut last_failure = None;
    if let Ok(done) = clock.timeout_at(deadline, call(&mut last_failure)).await {
        return done;
    }
    let late = Error::unavailable("the Cassandra cluster was not ready before the deadline");
    Err(match last_failure {
        Some(last_failure) => late.with_source(last_failure),
        None => late,
    })
}
