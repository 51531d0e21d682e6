//! What an operator decides.

use std::path::PathBuf;

use istorage::BadSetting;
use serde::Deserialize;

/// Where the file is and how much memory it may use.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The file that holds everything. It is made if it does not exist, with the folders above it. Only one node at a
    /// time can have it open.
    pub path: PathBuf,
    /// How many bytes of the file's pages are kept in memory, written ones included.
    #[serde(default = "cache_bytes")]
    pub cache_bytes: usize,
}

impl Config {
    /// The usual settings for the file at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Config {
        Config { path: path.into(), cache_bytes: cache_bytes() }
    }

    /// What can be judged without looking at the disk.
    ///
    /// # Errors
    /// The setting that cannot be.
    pub fn check(&self) -> Result<(), BadSetting> {
        if self.path.as_os_str().is_empty() {
            let why = "it is empty: name the file that holds everything, such as data/vvm.redb";
            return Err(BadSetting::new("path", why));
        }
        Ok(())
    }
}

fn cache_bytes() -> usize {
    256 << 20
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_enough_and_a_typo_is_refused() {
        let config: Config = toml::from_str("path = \"data/vvm.redb\"").unwrap();
        assert_eq!(config, Config::new("data/vvm.redb"));
        let typo = toml::from_str::<Config>("path = \"x\"\ncache_byte = 1");
        assert!(typo.unwrap_err().to_string().contains("cache_byte"));
    }
}
