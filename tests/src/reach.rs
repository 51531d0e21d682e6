//! Every driver, as far as its server was asked for.

use std::{path::Path, sync::Arc};

use istorage::Result;
use istorage_tck::Subject;

use crate::{
    servers::{CASSANDRA, CASSANDRA_CLUSTER, DYNAMODB, Server},
    subjects::{Cassandra, DynamoDb, MemInRealTime, Redb},
};

/// How a driver is reached: itself, or why it is not.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "a `Subject` has none")]
pub enum Reach {
    /// Nobody asked for its server.
    NotAskedFor(&'static str),
    /// Here it is. Whether its server answers is seen when it is used.
    Subject(Arc<dyn Subject>),
}

impl Reach {
    /// A subject that needs no server.
    #[must_use]
    pub fn of(subject: impl Subject + 'static) -> Reach {
        Reach::Subject(Arc::new(subject))
    }

    fn on<S: Subject + 'static>(server: Server, at: fn(&str) -> S) -> Reach {
        match server.address() {
            Some(address) => Reach::of(at(&address)),
            None => Reach::NotAskedFor(server.not_asked_for),
        }
    }
}

/// Every driver, on the machine's own clock.
#[expect(missing_debug_implementations, reason = "a `Subject` has none")]
pub struct Drivers {
    /// Memory.
    pub mem: Reach,
    /// A redb file.
    pub redb: Reach,
    /// One node of Cassandra.
    pub cassandra: Reach,
    /// Three nodes of one Cassandra cluster.
    pub cassandra_cluster: Reach,
    /// DynamoDB Local.
    pub dynamodb: Reach,
}

impl Drivers {
    /// All of them; redb's files are made in the folder.
    ///
    /// # Errors
    /// If a file cannot be opened there.
    pub async fn reach(folder: &Path) -> Result<Drivers> {
        Ok(Drivers {
            mem: Reach::of(MemInRealTime::default()),
            redb: Reach::of(Redb::open_in(folder).await?),
            cassandra: Reach::on(CASSANDRA, Cassandra::at),
            cassandra_cluster: Reach::on(CASSANDRA_CLUSTER, Cassandra::at),
            dynamodb: Reach::on(DYNAMODB, DynamoDb::at),
        })
    }
}
