//! Which storage, in the configuration.

use std::path::PathBuf;

use serde::Deserialize;

use crate::{failure::Failure, target::Target};

/// Where redb keeps everything if nothing is said.
const DEFAULT_FILE: &str = "data/vvm.redb";

/// Which storage, and the settings of each. Those of the others are checked and not used.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StorageConfig {
    driver: DriverName,
    /// The keyspace of what all nodes share; those of applications begin with its name.
    pub(crate) system_keyspace: Option<String>,
    redb: RedbSettings,
    cassandra: Option<istorage_cassandra::Config>,
    dynamodb: istorage_dynamodb::Config,
}

/// As [`istorage_redb::Config`], with a place for the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RedbSettings {
    path: PathBuf,
    cache_bytes: usize,
}

impl Default for RedbSettings {
    fn default() -> RedbSettings {
        let istorage_redb::Config { path, cache_bytes } = istorage_redb::Config::new(DEFAULT_FILE);
        RedbSettings { path, cache_bytes }
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum DriverName {
    Mem,
    #[default]
    Redb,
    Cassandra,
    Dynamodb,
}

impl StorageConfig {
    /// The storage that is chosen.
    pub(crate) fn into_target(self) -> Result<Target, Failure> {
        let missing = "`storage.driver` is \"cassandra\", and `[storage.cassandra]` with its `contact_points` is missing";
        Ok(match self.driver {
            DriverName::Mem => Target::Mem,
            DriverName::Redb => {
                let RedbSettings { path, cache_bytes } = self.redb;
                Target::Redb(istorage_redb::Config { path, cache_bytes })
            }
            DriverName::Cassandra => {
                Target::Cassandra(Box::new(self.cassandra.ok_or_else(|| Failure::config(missing))?))
            }
            DriverName::Dynamodb => Target::DynamoDb(Box::new(self.dynamodb)),
        })
    }
}
