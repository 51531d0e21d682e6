//! All drivers for which the suites have a server, or that need none.

use std::{path::Path, sync::Arc};

use istorage::Result;
use istorage_tck::Subject;

use crate::{
    servers::{CASSANDRA, CASSANDRA_CLUSTER, DYNAMODB, Server},
    subjects::{Cassandra, DynamoDb, MemInRealTime, Redb},
};

/// A subject, or the reason for which the suites run without it.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "a `Subject` has none")]
pub enum Reach {
    /// The server of the driver was not asked for. The text says why.
    NotAskedFor(&'static str),
    /// The subject. Only its use shows whether its server answers.
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

/// All drivers, on the system clock.
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
    /// Reaches all drivers. The files of redb are made in the folder.
    ///
    /// # Errors
    /// If a file cannot be opened in the folder.
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
