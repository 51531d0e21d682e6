//! The configuration: defaults, then the file, then the environment, then flags. A later source
//! overrides an earlier one.

mod access;
mod address;
mod app_sequences;
mod apps;
mod cluster;
mod demo;
mod http;
mod log;
mod node;
mod overrides;
mod reader;
mod seconds;
mod sequences;
mod series;
mod source;
mod storage;
mod traces;

use std::path::Path;

use ctl::CommandError;
use serde::{Deserialize, Serialize};

pub(crate) use access::AccessConfig;
pub(crate) use apps::AppConfig;
pub(crate) use cluster::ClusterConfig;
pub(crate) use demo::demo;
pub(crate) use http::{AdminConfig, HttpConfig};
pub(crate) use log::LogConfig;
pub(crate) use node::NodeConfig;
use overrides::hide_secrets;
pub(crate) use overrides::{ConfigOverride, without_login};
pub(crate) use seconds::Seconds;
pub(crate) use sequences::{SequencesConfig, SequencesIn};
pub(crate) use source::ConfigSource;
pub(crate) use storage::StorageConfig;
pub(crate) use traces::TracesConfig;

/// The whole configuration.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct VvmConfig {
    pub(crate) node: NodeConfig,
    pub(crate) cluster: ClusterConfig,
    pub(crate) http: HttpConfig,
    pub(crate) admin: AdminConfig,
    pub(crate) access: Option<AccessConfig>,
    #[serde(skip_serializing)]
    pub(crate) storage: StorageConfig,
    pub(crate) sequences: SequencesConfig,
    pub(crate) apps: Vec<AppConfig>,
    pub(crate) log: LogConfig,
    pub(crate) traces: Option<TracesConfig>,
    /// The settings as they were set, with their places.
    #[serde(skip)]
    pub(crate) source: ConfigSource,
}

impl VvmConfig {
    /// Reads the file, if there is one, and applies the overrides.
    pub(crate) fn read(
        path: Option<&Path>,
        overrides: &[ConfigOverride],
    ) -> Result<VvmConfig, CommandError> {
        let text = match path {
            None => String::new(),
            Some(path) => std::fs::read_to_string(path).map_err(|error| {
                let path = path.display();
                CommandError::config(format!("cannot read the configuration file {path}: {error}"))
            })?,
        };
        let source = ConfigSource::new(path, &text, overrides)?;
        let config = source.read()?;
        Ok(VvmConfig { source, ..config })
    }

    /// Returns the files with secrets, with the keys that name them: also the file of the
    /// configuration if it has a secret itself.
    pub(crate) fn private_files(&self) -> Vec<(&'static str, &Path)> {
        let VvmConfig { http, admin, cluster, traces, storage, source, .. } = self;
        let own = source.file_with_secret();
        let files = [
            ("http.tls.key_file", http.tls.as_ref().map(|tls| &tls.key_file)),
            ("admin.tls.key_file", admin.tls.as_ref().map(|tls| &tls.key_file)),
            ("cluster.tls.key_file", cluster.tls.as_ref().map(|tls| &tls.key_file)),
            ("traces.token_file", traces.as_ref().and_then(|traces| traces.token_file.as_ref())),
        ];
        let files = files.into_iter().filter_map(|(key, file)| Some((key, file?.as_path())));
        files.chain(storage.private_files()).chain(own).collect()
    }

    /// Returns the files that decide which clients and nodes are let in, with the keys or the flag
    /// that name them: also the file of the configuration, which names the others.
    pub(crate) fn trusted_files(&self) -> Vec<(&'static str, &Path)> {
        let VvmConfig { admin, cluster, access, source, .. } = self;
        let admin_tls = admin.tls.as_ref();
        let files = [
            ("access.keys_file", access.as_ref().map(|access| &access.keys_file)),
            ("admin.tls.client_ca_file", admin_tls.and_then(|tls| tls.client_ca_file.as_ref())),
            ("cluster.tls.ca_file", cluster.tls.as_ref().map(|tls| &tls.ca_file)),
        ];
        let files = files.into_iter().filter_map(|(key, file)| Some((key, file?.as_path())));
        files.chain(source.file().map(|file| ("--config", file))).collect()
    }

    /// Returns the configuration in force, without passwords.
    pub(crate) fn to_toml(&self) -> Result<String, CommandError> {
        let failed = |error| CommandError::unfinished(format!("the configuration: {error}"));
        let mut all = toml::Table::try_from(self).map_err(failed)?;
        let mut storage = self.source.section("storage");
        self.storage.complete(&mut storage).map_err(failed)?;
        all.insert("storage".to_owned(), storage.into());
        hide_secrets(&mut all);
        if let Some(cluster) = all.get_mut("cluster").and_then(toml::Value::as_table_mut) {
            let seats = self.cluster.seats(self.storage.is_embedded());
            cluster.insert("seats".to_owned(), i64::from(seats.get()).into());
        }
        let text = toml::to_string(&all).map_err(failed)?;
        let demo = match self.apps.is_empty() {
            true => "# No application is configured, so the node runs the demo.\n",
            false => "",
        };
        Ok(format!("{}{demo}{text}", self.source.comments()))
    }
}

#[cfg(test)]
impl VvmConfig {
    /// Reads a configuration from its text, without overrides.
    pub(crate) fn of_text(text: &str) -> VvmConfig {
        ConfigSource::new(None, text, &[]).unwrap().read().unwrap()
    }
}

#[cfg(test)]
mod tests;
