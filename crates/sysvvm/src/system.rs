//! A database with its system keyspace open.

mod format;
mod imports;
mod keyspace;
mod registry;
mod rows;
mod seats;

use std::sync::Arc;

use bytes::Bytes;
use clock::{Clock, Instant};
use istorage::{KeyspaceName, SharedStorage, StorageDriver};

use self::keyspace::open_existing;
pub use self::{
    format::FORMAT_VERSION,
    imports::{AppImport, ImportState},
};
use crate::{
    AppEntry, ElectionRows, MemberRows, NumberRows, OwnerRows, RepairRows, Result, layout,
};

/// The longest name of a system keyspace. The names of the applications' keyspaces begin with it,
/// and need room for a number.
const SYSTEM_NAME_MAX: usize = 32;

/// A database with its system keyspace open.
#[derive(Debug)]
pub struct System {
    driver: Arc<dyn StorageDriver>,
    keyspace: KeyspaceName,
    storage: SharedStorage,
    clock: Clock,
}

/// An application with its keyspace open.
#[derive(Clone, Debug)]
pub struct OpenedApp {
    /// The entry of the application in the registry.
    pub entry: AppEntry,
    /// The keyspace of the application.
    pub storage: SharedStorage,
}

impl System {
    /// Opens the system keyspace, and makes it if the database is new. Any number of nodes may do
    /// so at once.
    ///
    /// # Errors
    /// [`Error::Foreign`](crate::Error::Foreign),
    /// [`Error::NewerFormat`](crate::Error::NewerFormat) and
    /// [`Error::OlderFormat`](crate::Error::OlderFormat) if the keyspace is not for this program.
    /// Nothing is changed then.
    pub async fn open(
        driver: Arc<dyn StorageDriver>,
        keyspace: KeyspaceName,
        clock: Clock,
        deadline: Instant,
    ) -> Result<System> {
        if keyspace.as_str().len() > SYSTEM_NAME_MAX {
            let message = format!(
                "the name of the system keyspace, `{keyspace}`, is longer than {SYSTEM_NAME_MAX}"
            );
            return Err(istorage::Error::invalid(message).into());
        }
        let storage = match driver.open(&keyspace, deadline).await? {
            Some(storage) => storage,
            None => {
                driver.create(&keyspace, deadline).await?;
                open_existing(&*driver, &clock, &keyspace, deadline).await?
            }
        };
        let system = System { driver, keyspace, storage, clock };
        system.check_format(deadline).await?;
        Ok(system)
    }

    /// Returns the system keyspace.
    #[must_use]
    pub fn storage(&self) -> &SharedStorage {
        &self.storage
    }

    /// Returns the name of the system keyspace.
    #[must_use]
    pub fn keyspace(&self) -> &KeyspaceName {
        &self.keyspace
    }

    /// Returns the store of the elections of this cluster.
    #[must_use]
    pub fn elections(&self) -> ElectionRows {
        ElectionRows::new(Arc::clone(&self.storage), self.clock.clone())
    }

    /// Returns the ownership rows of all partitions.
    #[must_use]
    pub fn owners(&self) -> OwnerRows {
        OwnerRows::new(Arc::clone(&self.storage), self.clock.clone())
    }

    /// Returns the members of the cluster and the orders of operators.
    #[must_use]
    pub fn members(&self) -> MemberRows {
        MemberRows::new(Arc::clone(&self.storage), self.clock.clone())
    }

    /// Returns the stored numbers of an application.
    #[must_use]
    pub fn numbers(&self, app: &AppEntry) -> NumberRows {
        NumberRows::of_app(Arc::clone(&self.storage), self.clock.clone(), app.number)
    }

    /// Returns the repairs of an application.
    #[must_use]
    pub fn repairs(&self, app: &AppEntry) -> RepairRows {
        RepairRows::new(Arc::clone(&self.storage), app.number)
    }

    /// Returns the first bytes of the partition keys of an application's document numbers. All rows
    /// of the [system keyspace](System::storage) whose partition key begins with these bytes belong
    /// to the document numbers of this application.
    #[must_use]
    pub fn document_numbers(&self, app: &AppEntry) -> Bytes {
        layout::document_numbers(app.number)
    }

    /// Returns the driver of the database.
    #[must_use]
    pub fn driver(&self) -> &Arc<dyn StorageDriver> {
        &self.driver
    }
}

#[cfg(test)]
mod tests;
