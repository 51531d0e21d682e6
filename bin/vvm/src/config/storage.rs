//! The section `storage` of the configuration.

use std::path::{Path, PathBuf};

use ctl::{CommandError, StorageTarget};
use istorage::{InvalidSetting, KeyspaceName};
use serde::{Deserialize, Deserializer, Serialize, de::Error};

use super::ConfigSource;

/// The default file of redb.
const DEFAULT_FILE: &str = "data/vvm.redb";

/// The driver in use, and the settings of each driver. The settings of the other drivers are
/// checked and not used.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StorageConfig {
    driver: DriverName,
    /// The name of the system keyspace. The names of the keyspaces of applications begin with this
    /// name.
    #[serde(deserialize_with = "keyspace")]
    pub(crate) system_keyspace: Option<KeyspaceName>,
    redb: RedbSettings,
    cassandra: Option<istorage_cassandra::CassandraConfig>,
    dynamodb: istorage_dynamodb::DynamoDbConfig,
}

/// The settings of [`istorage_redb::RedbConfig`], with a default for the path.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct RedbSettings {
    path: PathBuf,
    cache_bytes: usize,
}

impl Default for RedbSettings {
    fn default() -> RedbSettings {
        let istorage_redb::RedbConfig { path, cache_bytes } =
            istorage_redb::RedbConfig::new(DEFAULT_FILE);
        RedbSettings { path, cache_bytes }
    }
}

fn keyspace<'de, D: Deserializer<'de>>(from: D) -> Result<Option<KeyspaceName>, D::Error> {
    let name = String::deserialize(from)?;
    KeyspaceName::new(name).map(Some).map_err(D::Error::custom)
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum DriverName {
    Mem,
    #[default]
    Redb,
    Cassandra,
    Dynamodb,
}

impl StorageConfig {
    /// Adds the values in force that `settings` does not set, if they are the same for every node.
    pub(super) fn complete(&self, settings: &mut toml::Table) -> Result<(), toml::ser::Error> {
        settings.insert("driver".to_owned(), toml::Value::try_from(self.driver)?);
        settings.entry("system_keyspace").or_insert_with(|| vvm::NodeSettings::SYSTEM.into());
        if matches!(self.driver, DriverName::Redb) {
            settings.insert("redb".to_owned(), toml::Value::try_from(&self.redb)?);
        }
        Ok(())
    }

    /// Whether only one process can use the storage.
    pub(super) fn is_embedded(&self) -> bool {
        matches!(self.driver, DriverName::Mem | DriverName::Redb)
    }

    /// Returns the files with secrets for the storage in use, with the keys that name them.
    pub(super) fn private_files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let in_use = matches!(self.driver, DriverName::Cassandra);
        let cassandra = self.cassandra.as_ref().filter(|_| in_use);
        let login = cassandra.and_then(|config| config.login.as_ref()?.password_file.as_deref());
        let key = cassandra.and_then(|config| config.tls.as_ref()?.key_file.as_deref());
        let password = login.map(|file| ("storage.cassandra.login.password_file", file));
        password.into_iter().chain(key.map(|file| ("storage.cassandra.tls.key_file", file)))
    }

    /// Returns the storage in use.
    pub(crate) fn to_target(&self, source: &ConfigSource) -> Result<StorageTarget, CommandError> {
        let wrong = |driver, InvalidSetting { key, reason }| {
            let path: Vec<&str> = ["storage", driver].into_iter().chain(key.split('.')).collect();
            source.wrong(&path, reason)
        };
        let missing = "the driver is \"cassandra\", and the section `[storage.cassandra]` with `contact_points` is missing";
        Ok(match self.driver {
            DriverName::Mem => StorageTarget::Mem,
            DriverName::Redb => {
                let RedbSettings { path, cache_bytes } = &self.redb;
                let config =
                    istorage_redb::RedbConfig { path: path.clone(), cache_bytes: *cache_bytes };
                config.check().map_err(|invalid| wrong("redb", invalid))?;
                StorageTarget::Redb(config)
            }
            DriverName::Cassandra => {
                let config = self.cassandra.clone();
                let config = config.ok_or_else(|| source.wrong(&["storage", "driver"], missing))?;
                config.check().map_err(|invalid| wrong("cassandra", invalid))?;
                StorageTarget::Cassandra(Box::new(config))
            }
            DriverName::Dynamodb => {
                self.dynamodb.check().map_err(|invalid| wrong("dynamodb", invalid))?;
                StorageTarget::DynamoDb(Box::new(self.dynamodb.clone()))
            }
        })
    }
}
