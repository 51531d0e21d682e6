//! The configuration file.

use std::path::{Path, PathBuf};

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

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn shipped(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config").join(name)
    }

    fn read(name: &str) -> String {
        std::fs::read_to_string(shipped(name)).unwrap()
    }

    fn target(text: &str) -> Target {
        toml::from_str::<Config>(text).unwrap().storage.into_target().unwrap()
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
    fn the_file_that_we_ship_for_redb_says_what_holds_without_it() {
        assert_eq!(target(""), target(&read("vvm.toml")));
    }

    /// An example that set something else than the default would make who deletes a line move their data.
    #[test]
    fn each_setting_of_the_files_that_we_ship_can_be_left_out() {
        let mut left_out = 0;
        for (name, needed) in [
            ("vvm.toml", [].as_slice()),
            ("cassandra.toml", ["driver", "contact_points"].as_slice()),
            ("dynamodb.toml", ["driver"].as_slice()),
        ] {
            let text = read(name);
            let is_setting = |line: &&str| !line.starts_with('#') && line.contains('=');
            let is_needed = |line: &&str| needed.iter().any(|key| line.starts_with(key));
            for line in text.lines().filter(is_setting).filter(|line| !is_needed(line)) {
                assert_eq!(target(&text.replace(line, "")), target(&text), "{name}: {line}");
                left_out += 1;
            }
        }
        assert_eq!(left_out, 7);
    }
}
