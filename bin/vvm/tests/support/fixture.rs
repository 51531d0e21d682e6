//! Storages for nodes as processes.

use std::{net::SocketAddr, path::Path, sync::Arc};

use clock::Clock;
use istorage::{KeyspaceName, SharedStorage, StorageDriver};
use istorage_cassandra::{CassandraConfig, CassandraDriver, ServerSettings};
use sysvvm::{AppName, System};
use tempfile::TempDir;

use super::node::{NodeProcess, PATIENCE};

/// A storage, and the address of its server.
#[derive(Clone)]
pub(crate) enum Storage {
    Redb,
    Cassandra(String),
    DynamoDb(String),
}

impl Storage {
    /// Returns each storage with its name. `None` means that the storage needs a server, and the
    /// environment names none.
    pub(crate) fn all() -> [(&'static str, Option<Storage>); 3] {
        let address = |variable| std::env::var(variable).ok();
        [
            ("redb", Some(Storage::Redb)),
            ("cassandra", address("VVM_TEST_CASSANDRA").map(Storage::Cassandra)),
            ("dynamodb", address("VVM_TEST_DYNAMODB").map(Storage::DynamoDb)),
        ]
    }
}

/// Keyspaces on a storage for one test, and a folder for each of its nodes.
pub(crate) struct StorageFixture {
    pub(crate) storage: Storage,
    system: String,
    folder: TempDir,
}

impl StorageFixture {
    /// The name of a second application, whose keyspace is dropped with that of the demo.
    #[allow(dead_code, reason = "only the suite of clusters needs it")]
    pub(crate) const SECOND_APP: &str = "demo/notes";

    pub(crate) fn new(storage: Storage) -> StorageFixture {
        let system = format!("node_{:x}", Clock::system().random() >> 24);
        StorageFixture { storage, system, folder: tempfile::tempdir().unwrap() }
    }

    /// Returns the section `storage` of a configuration.
    pub(crate) fn config(&self, storage: &Storage) -> String {
        let driver = match storage {
            Storage::Redb => {
                "driver = \"redb\"\nredb = { path = \"vvm.redb\", cache_bytes = 33554432 }"
                    .to_owned()
            }
            Storage::Cassandra(addresses) => format!(
                "driver = \"cassandra\"\ncassandra = {{ contact_points = [\"{}\"], replication = \"up_to_three\" }}",
                addresses.replace(',', "\", \"")
            ),
            Storage::DynamoDb(endpoint) => format!(
                "driver = \"dynamodb\"\ndynamodb = {{ endpoint = \"{endpoint}\", region = \"local\", access_key_id = \"local\", secret_access_key = \"local\", table_prefix = \"\" }}"
            ),
        };
        format!("[storage]\nsystem_keyspace = \"{}\"\n{driver}\n", self.system)
    }

    /// Starts a node in a folder of its own.
    pub(crate) fn start(&self, name: &str, config: &str) -> NodeProcess {
        let folder = self.folder.path().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        NodeProcess::start(&folder, config)
    }

    /// Writes a file into the folder of a node.
    #[allow(dead_code, reason = "only the suite of clusters needs it")]
    pub(crate) fn write(&self, name: &str, file: &str, text: &str) {
        let folder = self.folder.path().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(file), text).unwrap();
    }

    /// Starts a node in its folder, at addresses that it had before.
    #[allow(dead_code, reason = "only the suite of clusters needs it")]
    pub(crate) fn start_at(
        &self,
        name: &str,
        config: &str,
        api: SocketAddr,
        admin: SocketAddr,
    ) -> NodeProcess {
        let folder = self.folder.path().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        NodeProcess::start_at(&folder, config, api, admin)
    }

    /// Connects to the servers at these addresses.
    async fn connect_to_cassandra(addresses: &str) -> CassandraDriver {
        let clock = Clock::system();
        let soon = clock.now() + PATIENCE;
        let config = CassandraConfig::new(addresses.split(',').map(str::to_owned));
        CassandraDriver::connect(config, clock, soon).await.unwrap()
    }

    /// The settings of the servers of Cassandra.
    #[allow(dead_code, reason = "only the suite of the doctor needs it")]
    pub(crate) fn server_settings(addresses: &str) -> Vec<ServerSettings> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let driver = StorageFixture::connect_to_cassandra(addresses).await;
            let servers = driver.server_settings(Clock::system().now() + PATIENCE).await.unwrap();
            driver.close().await;
            servers
        })
    }

    /// Opens the storage. A file of redb must be that of a node that was stopped.
    async fn connect(&self, redb: &Path) -> Arc<dyn StorageDriver> {
        let clock = Clock::system();
        let soon = clock.now() + PATIENCE;
        match &self.storage {
            Storage::Redb => {
                let config = istorage_redb::RedbConfig::new(redb);
                Arc::new(istorage_redb::RedbDriver::open(config, clock).await.unwrap())
            }
            Storage::Cassandra(addresses) => {
                Arc::new(StorageFixture::connect_to_cassandra(addresses).await)
            }
            Storage::DynamoDb(endpoint) => {
                let config = istorage_dynamodb::DynamoDbConfig {
                    table_prefix: String::new(),
                    ..istorage_dynamodb::DynamoDbConfig::local(endpoint)
                };
                let driver = istorage_dynamodb::DynamoDbDriver::connect(config, clock, soon);
                Arc::new(driver.await.unwrap())
            }
        }
    }

    /// Changes rows of the demo application while its node `name` is stopped.
    #[allow(dead_code, reason = "only the suite of repairs needs it")]
    pub(crate) fn change(&self, name: &str, changes: impl AsyncFnOnce(SharedStorage)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (clock, redb) = (Clock::system(), self.redb_file(name));
            let (driver, soon) = (self.connect(&redb).await, clock.now() + PATIENCE);
            let system = KeyspaceName::new(&self.system).unwrap();
            let system = System::open(Arc::clone(&driver), system, clock, soon).await.unwrap();
            let app = system.open_app(&AppName::new("demo", "shop").unwrap(), soon).await.unwrap();
            changes(app.storage).await;
            driver.close().await;
        });
    }

    /// Changes rows of the system keyspace while the node `name` is stopped.
    #[allow(dead_code, reason = "only the suite of repairs needs it")]
    pub(crate) fn change_system(&self, name: &str, changes: impl AsyncFnOnce(SharedStorage)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let soon = Clock::system().now() + PATIENCE;
            let driver = self.connect(&self.redb_file(name)).await;
            let system = KeyspaceName::new(&self.system).unwrap();
            changes(driver.open(&system, soon).await.unwrap().unwrap()).await;
            driver.close().await;
        });
    }

    /// The file of redb of a node.
    pub(crate) fn redb_file(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name).join("vvm.redb")
    }

    /// Drops the keyspaces that the nodes made.
    fn clean(&self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        if matches!(self.storage, Storage::Redb) {
            return;
        }
        runtime.block_on(async {
            let soon = Clock::system().now() + PATIENCE;
            let driver = self.connect(Path::new("")).await;
            let apps = ["1_demo_shop", "2_demo_notes"].map(|app| format!("{}_{app}", self.system));
            for name in apps.into_iter().chain([self.system.clone()]) {
                let name = KeyspaceName::new(name).unwrap();
                driver.drop_keyspace(&name, soon).await.unwrap();
            }
            driver.close().await;
        });
    }
}

impl Drop for StorageFixture {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.clean();
        }
    }
}
