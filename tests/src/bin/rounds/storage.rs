//! The storage of a run.

use std::{fmt, net::SocketAddr, time::Duration};

use clap::ValueEnum;
use clock::Clock;
use istorage::{KeyspaceName, StorageDriver};
use istorage_cassandra::{CassandraConfig, CassandraDriver, CommitLogSync};
use tokio::net::TcpStream;
use vvm_tests::{
    bench::{BenchDatabase, BenchError, address},
    processes::SuspendedProcesses,
    servers::{CASSANDRA, CASSANDRA_CLUSTER, DYNAMODB},
};

use crate::network::Link;

/// The time for a server to start again.
const SERVER_START: Duration = Duration::from_secs(180);

/// The time for asking the servers.
const ASK_TIMEOUT: Duration = Duration::from_secs(30);

/// The time for dropping the keyspaces of a run.
const DROP_TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum StorageKind {
    Redb,
    Cassandra,
    /// Three servers.
    CassandraCluster,
    Dynamodb,
}

/// A storage and its servers.
#[derive(Clone, Debug)]
pub(crate) struct RunStorage {
    pub(crate) kind: StorageKind,
    /// `host:port` of each server.
    pub(crate) servers: Vec<String>,
    pub(crate) keyspace: String,
}

impl StorageKind {
    /// How long after its sending a write may still land.
    pub(crate) fn late_write(self) -> Duration {
        match self {
            StorageKind::Redb => istorage_redb::CAPABILITIES.late_write,
            StorageKind::Cassandra | StorageKind::CassandraCluster => {
                istorage_cassandra::CAPABILITIES.late_write
            }
            StorageKind::Dynamodb => istorage_dynamodb::CAPABILITIES.late_write,
        }
    }
}

impl RunStorage {
    /// Finds the servers in the environment.
    pub(crate) fn find(kind: StorageKind, clock: &Clock) -> Result<RunStorage, BenchError> {
        let servers = match kind {
            StorageKind::Redb => String::new(),
            StorageKind::Cassandra => address(CASSANDRA)?,
            StorageKind::CassandraCluster => address(CASSANDRA_CLUSTER)?,
            StorageKind::Dynamodb => address(DYNAMODB)?,
        };
        let servers = servers.trim_start_matches("http://").split(',').filter(|at| !at.is_empty());
        let keyspace = format!("rounds_{:x}", clock.random() >> 24);
        Ok(RunStorage { kind, servers: servers.map(str::to_owned).collect(), keyspace })
    }

    /// The servers that a node reaches over links: all of them, or none. A driver for several
    /// servers learns their addresses from the servers. So only the library in the node can lead
    /// its connections to links, and the library knows IPv4 alone.
    pub(crate) fn behind_links(&self, has_shim: bool) -> Result<Vec<SocketAddr>, BenchError> {
        match &self.servers[..] {
            // A cluster has servers that are not named here.
            [_] if self.kind == StorageKind::CassandraCluster => Ok(Vec::new()),
            [server] => {
                let why = "the program needs an IP address and a port to put a link before it";
                let server = server.parse().map_err(|_| format!("the server {server}: {why}"))?;
                Ok(vec![server])
            }
            servers if has_shim => {
                let parsed = servers.iter().map(|server| server.parse().map(SocketAddr::V4));
                Ok(parsed.collect::<Result<_, _>>().unwrap_or_default())
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Whether a server that is killed keeps everything that it has acknowledged.
    pub(crate) async fn has_durable_servers(&self, clock: &Clock) -> Result<bool, BenchError> {
        if !matches!(self.kind, StorageKind::Cassandra | StorageKind::CassandraCluster) {
            return Ok(false);
        }
        let deadline = clock.now() + ASK_TIMEOUT;
        let config = CassandraConfig::new(self.servers.iter().map(String::as_str));
        let driver = CassandraDriver::connect(config, clock.clone(), deadline).await?;
        let servers = driver.server_settings(deadline).await;
        driver.close().await;
        Ok(servers?.iter().all(|it| it.commit_log_sync() == CommitLogSync::BeforeAnswers))
    }

    /// Lets a server stand still until the value is dropped.
    pub(crate) fn suspend(&self, server: usize) -> Result<SuspendedProcesses, BenchError> {
        let server = &self.servers[server];
        let suspended = match self.kind {
            StorageKind::Dynamodb => {
                let address: SocketAddr = server.parse()?;
                SuspendedProcesses::dynamodb_at(address.port())
            }
            _ => SuspendedProcesses::nodes_at(&[server]),
        };
        Ok(suspended?)
    }

    /// Waits until a server that was started again takes connections: with two servers down, the
    /// storage would have no quorum.
    pub(crate) async fn wait_for_server(
        &self,
        server: usize,
        clock: &Clock,
    ) -> Result<(), BenchError> {
        let (server, deadline) = (&self.servers[server], clock.now() + SERVER_START);
        while TcpStream::connect(server).await.is_err() {
            if clock.now() >= deadline {
                return Err(format!("{server} did not start again in {SERVER_START:?}").into());
            }
            clock.sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    /// The section of a node with these links to its servers. Only the link to a single server is
    /// in the configuration: the library leads connections to the others.
    pub(crate) fn config(&self, links: &[Link]) -> String {
        let servers = match links {
            [link] => vec![link.address.to_string()],
            _ => self.servers.clone(),
        };
        let driver = match self.kind {
            StorageKind::Redb => {
                "driver = \"redb\"\nredb = { path = \"vvm.redb\", cache_bytes = 33554432 }"
                    .to_owned()
            }
            StorageKind::Cassandra | StorageKind::CassandraCluster => format!(
                "driver = \"cassandra\"\ncassandra = {{ contact_points = {servers:?}, replication = \"up_to_three\" }}"
            ),
            StorageKind::Dynamodb => format!(
                "driver = \"dynamodb\"\ndynamodb = {{ endpoint = \"http://{}\", region = \"local\", access_key_id = \"local\", secret_access_key = \"local\" }}",
                servers.join(",")
            ),
        };
        format!("[storage]\nsystem_keyspace = \"{}\"\n{driver}\n", self.keyspace)
    }

    /// Drops the keyspaces of the run. The file of redb lies in the folder of the run.
    pub(crate) async fn clean(&self, clock: &Clock) -> Result<(), BenchError> {
        if self.kind == StorageKind::Redb {
            return Ok(());
        }
        let driver = BenchDatabase::connect(&self.kind.to_string(), clock).await?.driver;
        let deadline = clock.now() + DROP_TIMEOUT;
        for name in [format!("{}_1_demo_shop", self.keyspace), self.keyspace.clone()] {
            driver.drop_keyspace(&KeyspaceName::new(name)?, deadline).await?;
        }
        driver.close().await;
        Ok(())
    }
}

impl fmt::Display for StorageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        value_name(self, f)
    }
}

/// Writes a value as the command line has it.
pub(crate) fn value_name(value: &impl ValueEnum, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(value.to_possible_value().ok_or(fmt::Error)?.get_name())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storage(kind: StorageKind, servers: &[&str]) -> RunStorage {
        let servers = servers.iter().map(ToString::to_string).collect();
        RunStorage { kind, servers, keyspace: "rounds_1".to_owned() }
    }

    #[test]
    fn a_node_has_links_to_all_its_servers_or_to_none() {
        let behind = |kind, servers: &[&str], has_shim| {
            let found = storage(kind, servers).behind_links(has_shim).unwrap();
            found.iter().map(SocketAddr::to_string).collect::<Vec<_>>()
        };
        let three = ["127.0.0.1:9042", "127.0.0.2:9042", "127.0.0.3:9042"];
        let one = &three[..1];
        for has_shim in [false, true] {
            assert_eq!(behind(StorageKind::Cassandra, one, has_shim), one);
            assert_eq!(behind(StorageKind::Dynamodb, one, has_shim), one);
            assert!(behind(StorageKind::Redb, &[], has_shim).is_empty());
            assert!(behind(StorageKind::CassandraCluster, one, has_shim).is_empty());
        }
        for kind in [StorageKind::Cassandra, StorageKind::CassandraCluster] {
            assert_eq!(behind(kind, &three, true), three);
            assert!(behind(kind, &three, false).is_empty());
            assert!(behind(kind, &["127.0.0.1:9042", "db.example:9042"], true).is_empty());
            assert!(behind(kind, &["127.0.0.1:9042", "[::1]:9042"], true).is_empty());
        }
    }

    #[tokio::test]
    async fn only_a_single_server_is_configured_as_its_link() {
        let clock = Clock::system();
        let (mut links, servers) = (Vec::new(), ["127.0.0.1:9042", "127.0.0.2:9042"]);
        for server in servers {
            links.push(Link::start(server.parse().unwrap(), &clock).await.unwrap());
        }
        let text = storage(StorageKind::Cassandra, &servers[..1]).config(&links[..1]);
        let link = links[0].address.to_string();
        assert!(text.contains(&link) && !text.contains(servers[0]), "{text}");
        let text = storage(StorageKind::CassandraCluster, &servers).config(&links);
        assert!(text.contains(servers[0]) && text.contains(servers[1]), "{text}");
        assert!(!text.contains(&link), "{text}");
    }
}
