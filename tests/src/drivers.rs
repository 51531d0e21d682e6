//! All drivers that the suites have a server for, or that need none.

use std::{path::Path, sync::Arc};

use istorage::Result;
use tck::storage::Subject;

use crate::{
    servers::{CASSANDRA, CASSANDRA_CLUSTER, DYNAMODB, TestServer},
    subjects::{Cassandra, DynamoDb, MemInRealTime, Redb},
};

/// A subject, or why the suites run without it.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "a `Subject` has none")]
pub enum DriverSubject {
    /// The variable of the server is not set. The text is the reason to ignore the tests.
    Ignored(&'static str),
    /// The subject. Only its use shows whether its server answers.
    Available(Arc<dyn Subject>),
}

impl DriverSubject {
    /// A subject that needs no server.
    #[must_use]
    pub fn available(subject: impl Subject + 'static) -> DriverSubject {
        DriverSubject::Available(Arc::new(subject))
    }

    fn of_server<S: Subject + 'static>(server: TestServer, at: fn(&str) -> S) -> DriverSubject {
        match server.address() {
            Some(address) => DriverSubject::available(at(&address)),
            None => DriverSubject::Ignored(server.ignored_because),
        }
    }
}

/// All drivers, on the system clock.
#[expect(missing_debug_implementations, reason = "a `Subject` has none")]
pub struct Drivers {
    /// Memory.
    pub mem: DriverSubject,
    /// A redb file.
    pub redb: DriverSubject,
    /// One node of Cassandra.
    pub cassandra: DriverSubject,
    /// Three nodes of one Cassandra cluster.
    pub cassandra_cluster: DriverSubject,
    /// DynamoDB Local.
    pub dynamodb: DriverSubject,
}

impl Drivers {
    /// Opens all drivers. The files of redb are made in the folder.
    ///
    /// # Errors
    /// If a file cannot be opened in the folder.
    pub async fn open(folder: &Path) -> Result<Drivers> {
        Ok(Drivers {
            mem: DriverSubject::available(MemInRealTime::default()),
            redb: DriverSubject::available(Redb::open_in(folder).await?),
            cassandra: DriverSubject::of_server(CASSANDRA, Cassandra::at),
            cassandra_cluster: DriverSubject::of_server(CASSANDRA_CLUSTER, Cassandra::at),
            dynamodb: DriverSubject::of_server(DYNAMODB, DynamoDb::at),
        })
    }
}
