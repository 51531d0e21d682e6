//! The storage that a command line or a configuration names, for commands that read or write it
//! without a node.

use std::{sync::Arc, time::Duration};

use clock::{Clock, Instant};
use istorage::{ErrorKind, KeyspaceName, StorageDriver};

use crate::{
    cli::{ServeArgs, StorageArgs},
    command_error::CommandError,
    config::VvmConfig,
    serve,
    storage_target::StorageTarget,
};

/// The most time to connect to a storage and to open its system keyspace.
pub(crate) const OPEN_TIME: Duration = Duration::from_secs(30);

fn default_keyspace() -> Result<KeyspaceName, CommandError> {
    KeyspaceName::new(vvm::NodeSettings::SYSTEM)
        .map_err(|error| CommandError::storage("the name of the system keyspace", &error))
}

/// A storage, and the name of its system keyspace.
pub(crate) struct NamedStorage {
    pub(crate) target: StorageTarget,
    pub(crate) system: KeyspaceName,
}

impl NamedStorage {
    /// Finds the storage. A storage in memory is refused with `advice`, because it belongs to its
    /// node.
    pub(crate) fn of(args: &StorageArgs, advice: &str) -> Result<NamedStorage, CommandError> {
        match &args.storage {
            Some(target) => NamedStorage::new(target.clone(), default_keyspace()?, advice),
            None => {
                let config = args.config.clone();
                let config = serve::configuration(&ServeArgs { config, ..ServeArgs::default() })?;
                NamedStorage::of_node(&config, advice)
            }
        }
    }

    /// Finds the storage of a node.
    pub(crate) fn of_node(config: &VvmConfig, advice: &str) -> Result<NamedStorage, CommandError> {
        let target = config.storage.to_target(&config.source)?;
        let system = config.storage.system_keyspace.clone().map_or_else(default_keyspace, Ok)?;
        NamedStorage::new(target, system, advice)
    }

    fn new(
        target: StorageTarget,
        system: KeyspaceName,
        advice: &str,
    ) -> Result<NamedStorage, CommandError> {
        if target == StorageTarget::Mem {
            return Err(CommandError::usage(format!(
                "a storage in memory belongs to its node, and no other process can open it: {advice}"
            )));
        }
        Ok(NamedStorage { target, system })
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
