//! The configuration file.

use std::path::Path;

use serde::Deserialize;

use crate::{failure::Failure, target::Target};

/// Where redb keeps everything if nothing is said.
const DEFAULT_FILE: &str = "data/vvm.redb";

/// The file as a whole.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    pub(crate) storage: StorageConfig,
}

/// Which storage, and the settings of each. Those of the others are checked and not used.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StorageConfig {
    driver: DriverName,
    redb: Option<istorage_redb::Config>,
    cassandra: Option<istorage_cassandra::Config>,
    dynamodb: istorage_dynamodb::Config,
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

impl Config {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> Result<Config, Failure> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::config(format!("cannot read {}: {error}", path.display())))?;
        // The error shows the line, and what was expected there.
        toml::from_str(&text)
            .map_err(|error| Failure::config(format!("{}: {error}", path.display())))
    }
}

impl StorageConfig {
    /// The storage that is chosen.
    pub(crate) fn into_target(self) -> Result<Target, Failure> {
        let missing = "`storage.driver` is \"cassandra\", and `[storage.cassandra]` with its `contact_points` is missing";
        Ok(match self.driver {
            DriverName::Mem => Target::Mem,
            DriverName::Redb => {
                Target::Redb(self.redb.unwrap_or_else(|| istorage_redb::Config::new(DEFAULT_FILE)))
            }
            DriverName::Cassandra => {
                Target::Cassandra(Box::new(self.cassandra.ok_or_else(|| Failure::config(missing))?))
            }
            DriverName::Dynamodb => Target::DynamoDb(Box::new(self.dynamodb)),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn shipped(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config").join(name)
    }

    #[test]
    fn each_file_that_we_ship_is_read_and_names_its_storage() {
        let target = |name| Config::read(&shipped(name)).unwrap().storage.into_target().unwrap();
        assert!(
            matches!(target("vvm.toml"), Target::Redb(config) if config.path == Path::new("data/vvm.redb"))
        );
        assert!(matches!(target("cassandra.toml"), Target::Cassandra(_)));
        assert!(matches!(target("dynamodb.toml"), Target::DynamoDb(_)));
        assert_eq!(std::fs::read_dir(shipped("")).unwrap().count(), 3);
    }

    #[test]
    fn a_wrong_file_is_refused_with_the_place_and_what_was_expected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vvm.toml");
        std::fs::write(&path, "[storage]\ndriver = \"redb\"\n\n[storage.redb]\npaht = \"x\"\n")
            .unwrap();
        let message = Config::read(&path).unwrap_err().to_string();
        for part in ["vvm.toml", "line 5", "paht", "path"] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }

    #[test]
    fn cassandra_without_its_address_is_refused() {
        let config: Config = toml::from_str("[storage]\ndriver = \"cassandra\"").unwrap();
        let message = config.storage.into_target().unwrap_err().to_string();
        assert!(message.contains("contact_points"), "{message}");
    }

    #[test]
    fn an_empty_file_is_the_default() {
        let config: Config = toml::from_str("").unwrap();
        assert!(matches!(config.storage.into_target(), Ok(Target::Redb(_))));
    }
}
