//! The arguments that name a storage, for commands that read or write it without a node.

use std::path::PathBuf;

use clap::Args;
use istorage_redb::RedbConfig;

use crate::{
    CommandError, NodeConfiguration, named_storage::NamedStorage, storage_target::StorageTarget,
};

/// The storage that a command works on.
#[derive(Debug, Args)]
pub struct StorageArgs {
    /// The storage: mem, redb:PATH, cassandra:HOST:PORT or dynamodb:ENDPOINT.
    #[arg(long, value_name = "STORAGE", conflicts_with = "config")]
    pub(crate) storage: Option<StorageTarget>,

    /// The configuration file that names the storage. As for a node, a variable
    /// (VVM__STORAGE__DRIVER) overrides the file.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

impl StorageArgs {
    /// Whether the command line names a storage, or a configuration that names it.
    pub(crate) fn is_given(&self) -> bool {
        self.storage.is_some() || self.config.is_some()
    }

    /// Finds the storage.
    pub(crate) fn named(&self, node: NodeConfiguration) -> Result<NamedStorage, CommandError> {
        match &self.storage {
            Some(target) => NamedStorage::new(target.clone(), None),
            None => (node.storage)(self.config.as_deref()),
        }
    }

    /// Finds the storage. A storage in memory is refused with `advice`, because it belongs to its
    /// node.
    pub(crate) fn outside_memory(
        &self,
        node: NodeConfiguration,
        advice: &str,
    ) -> Result<NamedStorage, CommandError> {
        let named = self.named(node)?;
        match named.target {
            StorageTarget::Mem => Err(CommandError::usage(format!(
                "a storage in memory belongs to its node, and no other process can open it: {advice}"
            ))),
            _ => Ok(named),
        }
    }

    /// Finds the file of redb.
    pub(crate) fn redb_file(&self, node: NodeConfiguration) -> Result<RedbConfig, CommandError> {
        match self.named(node)?.target {
            StorageTarget::Redb(config) => Ok(config),
            StorageTarget::Mem => Err(CommandError::usage(
                "a storage in memory has no file, and ends with its node: the command works on redb files only",
            )),
            other => Err(CommandError::usage(format!(
                "{other} is not redb: the command works on redb files only; use the tools of that database"
            ))),
        }
    }
}
