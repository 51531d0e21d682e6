//! The storage that a command line or a configuration names, for commands that read or write it
//! without a node.

use std::{path::PathBuf, sync::Arc, time::Duration};

use clap::Args;
use clock::{Clock, Instant};
use istorage::{ErrorKind, KeyspaceName, StorageDriver};
use istorage_redb::RedbConfig;

use crate::{CommandError, NodeConfiguration, storage_target::StorageTarget};

/// The most time to connect to a storage and to open its system keyspace.
pub(crate) const OPEN_TIME: Duration = Duration::from_secs(30);

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

/// A storage, and the name of its system keyspace.
#[derive(Debug)]
pub struct NamedStorage {
    pub(crate) target: StorageTarget,
    pub(crate) system: KeyspaceName,
}

impl NamedStorage {
    /// Makes it with the name of the system keyspace, or with the usual name.
    ///
    /// # Errors
    /// None of the usual name.
    pub fn new(
        target: StorageTarget,
        system: Option<KeyspaceName>,
    ) -> Result<NamedStorage, CommandError> {
        let usual = || KeyspaceName::new(vvm::NodeSettings::SYSTEM);
        let system = system.map_or_else(usual, Ok);
        let wrong = |error| CommandError::storage("the name of the system keyspace", &error);
        Ok(NamedStorage { target, system: system.map_err(wrong)? })
    }

    /// Finds the storage. A storage in memory is refused with `advice`, because it belongs to its
    /// node.
    pub(crate) fn of(
        args: &StorageArgs,
        node: NodeConfiguration,
        advice: &str,
    ) -> Result<NamedStorage, CommandError> {
        let named = args.named(node)?;
        if named.target == StorageTarget::Mem {
            return Err(CommandError::usage(format!(
                "a storage in memory belongs to its node, and no other process can open it: {advice}"
            )));
        }
        Ok(named)
    }

    /// Opens a storage that exists, for writing. A wrong path would otherwise make an empty file.
    pub(crate) async fn open_existing(
        &self,
        clock: Clock,
        deadline: Instant,
    ) -> istorage::Result<Arc<dyn StorageDriver>> {
        if self.target.is_embedded() {
            self.target.open_for_reading(clock.clone(), deadline).await?.close().await;
        }
        self.target.connect(clock, deadline).await
    }

    /// Returns the error of a storage that cannot be opened. `advice` helps if a node uses the
    /// file.
    pub(crate) fn not_opened(&self, error: &istorage::Error, advice: &str) -> CommandError {
        let mut what = format!("cannot open {}", self.target);
        if error.kind() == ErrorKind::Unavailable && self.target.is_embedded() {
            what += &format!(" (if a node uses the file, {advice})");
        }
        CommandError::storage(&what, error)
    }
}
