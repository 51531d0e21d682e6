//! The settings of the driver.

use std::path::PathBuf;

use istorage::InvalidSetting;
use serde::Deserialize;

/// The path of the storage file, and the size of the memory cache for its pages.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedbConfig {
    /// The file that holds all keyspaces. The driver makes the file, and the folders above it, if
    /// they do not exist. Only one node at a time can have the file open.
    pub path: PathBuf,
    /// The size of the memory cache for pages of the file, in bytes. Written pages count too.
    #[serde(default = "cache_bytes")]
    pub cache_bytes: usize,
}

impl RedbConfig {
    /// Default settings for the file at `path`.
    pub fn new(path: impl Into<PathBuf>) -> RedbConfig {
        RedbConfig { path: path.into(), cache_bytes: cache_bytes() }
    }

    /// Checks the settings without looking at the disk.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        if self.path.as_os_str().is_empty() {
            let reason =
                "the path is empty: give the path of the storage file, such as data/vvm.redb";
            return Err(InvalidSetting::new("path", reason));
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
    fn only_the_path_is_required_and_unknown_settings_are_refused() {
        let config: RedbConfig = toml::from_str("path = \"data/vvm.redb\"").unwrap();
        assert_eq!(config, RedbConfig::new("data/vvm.redb"));
        let typo = toml::from_str::<RedbConfig>("path = \"x\"\ncache_byte = 1");
        assert!(typo.unwrap_err().to_string().contains("cache_byte"));
    }
}
